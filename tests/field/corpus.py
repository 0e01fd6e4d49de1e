"""Fetches the labelled repositories at the commits of their labels: `python tests/field/corpus.py DIR`.

Each comes without history and without large files into DIR/owner__name. What is there already is left alone.
"""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

LABELS = Path(__file__).with_name("labels.tsv")


def labelled_commits() -> dict[str, str]:
    """The labelled commit of each repository."""
    with LABELS.open(encoding="utf-8", newline="") as lines:
        return {row["repo"]: row["commit"] for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)}


def fetch(repository: str, commit: str, folder: Path) -> None:
    """One repository at one commit. Raises CalledProcessError where git cannot."""
    folder.mkdir(parents=True)
    for words in (
        ["init", "--quiet"],
        ["remote", "add", "origin", f"https://github.com/{repository}.git"],
        ["fetch", "--quiet", "--depth", "1", "--filter", "blob:limit=1m", "origin", commit],
        ["checkout", "--quiet", "FETCH_HEAD"],
    ):
        subprocess.run(["git", *words], cwd=folder, check=True)


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: python tests/field/corpus.py DIR", file=sys.stderr)
        return 2
    failed = 0
    for repository, commit in labelled_commits().items():
        folder = Path(sys.argv[1]) / repository.replace("/", "__")
        if folder.exists():
            continue
        try:
            fetch(repository, commit, folder)
        except subprocess.CalledProcessError as error:
            failed += 1
            print(f"{repository} at {commit[:8]} could not be fetched: {error}", file=sys.stderr)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
