"""The right trainer: one process and several agree, a resumed run equals an unbroken one, bad input gets one line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F
from torch.utils.data.distributed import DistributedSampler
from trainer_launch import torchrun

from ddp_audit_trainer import train
from ddp_audit_trainer.config import parse_config
from ddp_audit_trainer.data import GENERATED_TOKENS, IGNORED, Windows, generated_text, load_tokens, split_tokens
from ddp_audit_trainer.model import GPT, summed_loss


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No trace of a launcher, and one thread as torchrun gives its workers."""
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """The lines of a run as one process on the CPU, inside this one."""
    train.train(parse_config(["--device", "cpu", *arguments]))
    return capsys.readouterr().out.splitlines()


def refusal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    """The one line on stderr of a run that leaves with code 2 and prints nothing else."""
    monkeypatch.setattr("sys.argv", ["train", "--device", "cpu", *arguments])
    with pytest.raises(SystemExit) as left:
        train.main()
    assert left.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert len(lines) == 1, err
    return lines[0]


def numbers(lines: list[str], pattern: str) -> list[float]:
    return [float(match.group(1)) for line in lines if (match := re.match(pattern, line))]


LOSS = r"step \d+  epoch \d+  loss ([\d.]+)"
EVALUATION = r"evaluation before step \d+  loss ([\d.]+)"


@pytest.mark.parametrize("lengths", ["equal", "varied"])
def test_two_ranks_compute_what_one_process_computes(lengths: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The sampler deals out one permutation, so an update sees the same sequences however many ranks share it."""
    options = ("--dropout", "0", "--lengths", lengths, "--max-steps", "4", "--attention", "manual")
    two = torchrun(*options)
    assert two.code == 0, two.err
    one = run(capsys, *options)
    pair = (one, two.out.splitlines())
    for pattern in (LOSS, EVALUATION, r"step .*  tokens (\d+)", r"evaluation .*  tokens (\d+)"):
        alone, shared = (numbers(lines, pattern) for lines in pair)
        assert len(alone) >= 2
        assert shared == pytest.approx(alone, abs=2e-4)
    assert two.parameters.startswith("parameters: equal on 2 ranks")


def test_varied_lengths_give_the_gradient_of_the_mean_over_all_tokens(tmp_path: Path) -> None:
    """The first update of two ranks against a gradient written down here: Adam's first moment after one step is 0.1 of it."""
    options = ["--lengths", "varied", "--dropout", "0", "--grad-clip", "0", "--max-steps", "1"]
    two = torchrun(*options, "--checkpoint-dir", str(tmp_path))
    assert two.code == 0, two.err
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)

    config = parse_config(options)
    train_set, _ = split_tokens(load_tokens(config), config)
    torch.manual_seed(config.seed)
    model = GPT(config)
    sampler = DistributedSampler(train_set, num_replicas=1, rank=0, seed=config.seed)
    inputs, targets = train_set.batch(list(sampler)[: config.accumulation * config.batch_size])
    names = [name for name, _ in model.named_parameters()]

    def gradient(loss: torch.Tensor) -> dict[str, torch.Tensor]:
        return dict(zip(names, torch.autograd.grad(loss, list(model.parameters())), strict=True))

    each = F.cross_entropy(model(inputs).transpose(1, 2), targets, ignore_index=IGNORED, reduction="none")
    mean_of_tokens = gradient(each.sum() / (targets != IGNORED).sum())
    each = F.cross_entropy(model(inputs).transpose(1, 2), targets, ignore_index=IGNORED, reduction="none")
    mean_of_means = gradient((each.sum(1) / (targets != IGNORED).sum(1)).mean())
    apart = 0.0
    for index, name in enumerate(names):
        got = saved["optimizer"]["state"][index]["exp_avg"] * 10
        torch.testing.assert_close(got, mean_of_tokens[name], rtol=1e-3, atol=1e-6)
        apart = max(apart, float((got - mean_of_means[name]).abs().max()))
    assert apart > 1e-3


def test_a_resumed_run_equals_an_unbroken_one_on_three_ranks(tmp_path: Path) -> None:
    """Three, because from there on the layout of DDP's buckets shows in the last bits of the gradients."""
    options = ("--accumulation", "6", "--batch-size", "2")
    unbroken = torchrun(*options, "--max-steps", "6", ranks=3)
    first = torchrun(*options, "--max-steps", "3", "--checkpoint-dir", str(tmp_path), ranks=3)
    second = torchrun(*options, "--max-steps", "6", "--checkpoint-dir", str(tmp_path), "--resume", ranks=3)
    assert (unbroken.code, first.code, second.code) == (0, 0, 0), unbroken.err + first.err + second.err
    assert unbroken.parameters.startswith("parameters: equal on 3 ranks")
    assert first.parameters != unbroken.parameters
    assert second.parameters == unbroken.parameters
    assert first.losses + second.losses == unbroken.losses


@pytest.mark.parametrize("options", [("--sampling", "random-windows"), ("--lengths", "varied", "--attention", "manual")])
@pytest.mark.parametrize("broken_at", ["3", "4", "5"])
def test_a_resumed_process_equals_an_unbroken_one(
    options: tuple[str, ...], broken_at: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Within an epoch (3, 5) and at its end (4)."""
    unbroken = run(capsys, *options)
    folder = ("--checkpoint-dir", str(tmp_path))
    first = run(capsys, *options, *folder, "--max-steps", broken_at)
    second = run(capsys, *options, *folder, "--resume")
    assert unbroken[-1].startswith("parameters: equal on 1 rank, sha256 ")
    assert second[-1] == unbroken[-1] != first[-1]
    assert numbers(first, LOSS) + numbers(second, LOSS) == numbers(unbroken, LOSS)
    again = run(capsys, *options, *folder, "--resume")
    assert numbers(again, LOSS) == []
    assert again[-1] == unbroken[-1]


def test_a_checkpoint_at_an_evaluation_is_as_good_as_one_at_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unbroken = run(capsys)
    folder = ("--checkpoint-dir", str(tmp_path))
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(train, "learning_rate", interrupt_at(5))
        run(capsys, *folder)
    capsys.readouterr()
    assert torch.load(tmp_path / "checkpoint.pt", weights_only=True)["step"] == 3
    assert run(capsys, *folder, "--resume")[-1] == unbroken[-1]


def interrupt_at(last: int):  # type: ignore[no-untyped-def]
    right = train.learning_rate

    def learning_rate(config, step):  # type: ignore[no-untyped-def]
        if step == last:
            raise KeyboardInterrupt
        return right(config, step)

    return learning_rate


def test_the_target_loss_ends_the_training(capsys: pytest.CaptureFixture[str]) -> None:
    losses = numbers(run(capsys, "--target-loss", "5.2"), LOSS)
    assert losses[-1] < 5.2 <= min(losses[:-1])


def test_a_token_file_is_read_as_sixteen_bit_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = generated_text(GENERATED_TOKENS)
    file = tmp_path / "tokens.bin"
    file.write_bytes(b"".join(byte.to_bytes(2, "little") for byte in text))
    assert load_tokens(parse_config(["--data", str(file)])).tolist() == list(text)
    assert run(capsys, "--data", str(file))[-1] == run(capsys)[-1]


def test_windows_give_the_next_token_as_target_and_pad_where_lengths_vary() -> None:
    tokens = torch.arange(100, 201).to(torch.uint16)
    windows = Windows(tokens, parse_config(["--block-size", "20"]), stride=20)
    assert len(windows) == windows.disjoint == 5
    inputs, targets = windows[4]
    assert inputs.tolist() == list(range(180, 200))
    assert targets.tolist() == list(range(181, 201))
    every = Windows(tokens, parse_config(["--block-size", "20"]), stride=1)
    assert (len(every), every.disjoint) == (81, 5)
    assert every[80][1].tolist() == list(range(181, 201))
    varied = Windows(tokens, parse_config(["--block-size", "20", "--lengths", "varied"]), stride=20)
    lengths = [int((varied[index][1] != IGNORED).sum()) for index in range(5)]
    assert len(set(lengths)) == 5
    assert min(lengths) >= 5
    inputs, targets = varied[1]
    assert targets.tolist() == [*range(121, 121 + lengths[1]), *[IGNORED] * (20 - lengths[1])]


def test_manual_attention_computes_what_sdpa_computes_and_keeps_its_mask_as_a_buffer() -> None:
    models = []
    for attention in ("sdpa", "manual"):
        torch.manual_seed(3)
        models.append(GPT(parse_config(["--attention", attention, "--dropout", "0"])))
    inputs = torch.randint(256, (2, 32))
    torch.testing.assert_close(models[0](inputs), models[1](inputs))
    assert [len(list(model.buffers())) for model in models] == [0, 2]
    assert torch.isfinite(summed_loss(models[0](inputs), inputs))


@pytest.mark.parametrize(
    ("accumulation", "world_size", "near"), [("5", "2", "4 and 6 are"), ("40", "16", "32 and 48 are"), ("2", "3", "3 is")]
)
def test_an_accumulation_that_does_not_divide_is_refused_by_every_rank(
    accumulation: str, world_size: str, near: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", world_size)
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        line = refusal(capsys, monkeypatch, "--accumulation", accumulation)
        assert f"--accumulation {accumulation} does not divide over {world_size} ranks; {near}" in line


def test_torchrun_shows_the_refusal_and_no_traceback_of_ours() -> None:
    refused = torchrun("--accumulation", "5")
    assert refused.code == 1  # torchrun's own, whatever its workers left with
    assert "ddp_audit_trainer: --accumulation 5 does not divide over 2 ranks; 4 and 6 are next to it and do" in refused.err
    assert "exitcode  : 2" in refused.err
    assert "train.py" not in refused.err


def test_bad_input_is_refused_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    odd, empty, large, plain = (tmp_path / name for name in ("odd.bin", "empty.bin", "large.bin", "plain"))
    odd.write_bytes(b"abc")
    empty.write_bytes(b"")
    large.write_bytes(b"\xff\x01" * 500)
    plain.write_bytes(b"no checkpoint")

    def refuse(*arguments: str) -> str:
        return refusal(capsys, monkeypatch, *arguments)

    assert "No such file" in refuse("--data", str(tmp_path / "none.bin"))
    assert not (tmp_path / "none.bin").exists()
    assert "directory" in refuse("--data", str(tmp_path))
    assert "3 bytes are not a whole number" in refuse("--data", str(odd))
    assert "is not a token file" in refuse("--data", str(empty))
    assert "--vocab-size must be 512 or more" in refuse("--data", str(large))
    assert "too short for --block-size 2000" in refuse("--block-size", "2000")
    assert "gives each rank 67 sequences an epoch, one update needs 160" in refuse("--accumulation", "40")
    assert "needs at least two processes" in refuse("--hazard", "early-exit")
    assert "--backend gloo makes a process group: start it with torchrun" in refuse("--backend", "gloo")
    assert "cannot make the folder" in refuse("--checkpoint-dir", str(plain))
    folder = tmp_path / "run"
    assert "cannot resume" in refuse("--checkpoint-dir", str(folder), "--resume")
    run(capsys, "--checkpoint-dir", str(folder), "--max-steps", "1")
    assert "was written with --batch-size 4, this run has 2" in refuse(
        "--checkpoint-dir", str(folder), "--resume", "--batch-size", "2"
    )
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "was written by 1 ranks" in refuse("--checkpoint-dir", str(folder), "--resume")
    monkeypatch.delenv("WORLD_SIZE")
    (folder / "checkpoint.pt").write_bytes(b"no checkpoint")
    assert "torch cannot read it" in refuse("--checkpoint-dir", str(folder), "--resume")
    torch.save({"model": 1}, folder / "checkpoint.pt")
    assert "not a checkpoint of this trainer" in refuse("--checkpoint-dir", str(folder), "--resume")
    if not torch.cuda.is_available():
        assert "needs a GPU" in refuse("--device", "cuda")


@pytest.mark.parametrize("options", [("--n-embd", "30", "--n-head", "4"), ("--resume",), ("--batch-size", "0"), ("--dropout", "1")])
def test_options_that_cannot_be_are_usage_errors(options: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parse_config(options)
    assert left.value.code == 2
    assert "error: " in capsys.readouterr().err


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_one_gpu_trains_like_the_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--dropout", "0")
    on_cpu = numbers(run(capsys, *options), LOSS)
    train.train(parse_config(["--device", "cuda", *options]))
    assert numbers(capsys.readouterr().out.splitlines(), LOSS) == pytest.approx(on_cpu, abs=5e-3)
