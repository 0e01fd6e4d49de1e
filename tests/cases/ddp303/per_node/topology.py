"""Where this process stands."""

import os


def local_share() -> dict[str, int]:
    return {"num_replicas": int(os.environ["LOCAL_WORLD_SIZE"]), "rank": int(os.environ["LOCAL_RANK"])}


def share() -> dict[str, int]:
    return {"num_replicas": int(os.environ["WORLD_SIZE"]), "rank": int(os.environ["RANK"])}
