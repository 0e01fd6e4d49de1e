"""Prepares data, on one rank."""

import time


def download_corpus(seconds):
    """Stands for hours of work."""
    time.sleep(seconds)


def on_main(rank, work, *arguments):
    """Runs some work on rank 0 alone."""
    if rank != 0:
        return
    work(*arguments)
