"""A results file as a table of pandas: python examples/read_results.py [FILE]

Needs pandas, which certmask itself does not: pip install pandas. Without FILE, the run behind the README's table.
"""

import sys
from pathlib import Path

import pandas as pd

import certmask as cm

DEMO = Path(__file__).parent.parent / "results" / "demo.jsonl"


def main(path: str | Path = DEMO) -> None:
    run = cm.read_run(Path(path))  # checked field by field: what cannot be true of a run is an error
    print(f"{run.model['name']} on {len(run.rows)} photos of {run.data['name']}")

    # One row per image and defence; "label" is what the defence answered, "truth" what the photo shows.
    table = pd.DataFrame(
        [
            {"image": row["image"], "truth": row["label"], "defence": name, **outcome}
            for row in run.rows
            for name, outcome in row["defences"].items()
        ]
    )
    table["guarantee"] = table["defence"].map(lambda name: run.guarantee(name).value)
    table["clean"] = (table["label"] == table["truth"]) & ~table["alert"]

    shares = table.groupby("defence", sort=False)[["clean", "alert"]].mean()
    print("\nshare of photos answered rightly without an alert, and with a false alert:")
    print(shares.to_string(float_format="{:.2f}".format))

    # Detection promises less than recovery: never compare or add up certificates of two kinds.
    proved = table[table["guarantee"] != "none"].astype({"certified": bool})
    shares = proved.groupby(["guarantee", "defence"], sort=False)[["certified"]].mean()
    print("\ncertified share, by what the certificate promises:")
    print(shares.to_string(float_format="{:.2f}".format))


if __name__ == "__main__":
    main(*sys.argv[1:])
