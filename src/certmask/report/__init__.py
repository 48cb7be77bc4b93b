"""Words, tables, plots and pages from results files alone; never a model, never torch."""
