"""Tables and pictures from results files; never a model."""

from certmask.report.summary import Line, summarize

__all__ = ["Line", "summarize"]
