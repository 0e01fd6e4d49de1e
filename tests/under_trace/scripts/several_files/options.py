import argparse


def add_model_options(parser):
    group = parser.add_argument_group("model")
    group.add_argument("--name", choices=["tiny", "base"], default="base")
    group.add_argument("--width", type=int, default=6)


def parse(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--clip", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=0)
    add_model_options(parser)
    return parser.parse_args(argv)
