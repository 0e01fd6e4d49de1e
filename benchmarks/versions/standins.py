"""Stand-ins for the CUDA libraries that a build of torch wants to load and that this machine lacks.

The builds on PyPI link with several GB of libraries of which a run on CPUs calls nothing. A stand-in has the name of such a library
and each function that torch takes from it; every function answers 100, no device. Needs a C compiler and readelf.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

_NO_DEVICE = 100
_LIBRARIES = ("libcu", "libnv", "libnccl")
_FUNCTIONS = ("__cuda", "cu", "nccl", "nv")


def make(torch: Path) -> list[str]:
    """Put stand-ins beside torch's own libraries, in the folder `torch` of an installation; their names."""
    folder = torch / "lib"
    needed: set[str] = set()
    wanted: set[tuple[str, str]] = set()
    has: set[str] = set()
    owner: dict[str, str] = {}
    for library in sorted(folder.glob("*.so*")):
        needed.update(line.split("[")[1].rstrip("]") for line in _told("-d", library) if "(NEEDED)" in line)
        owner.update(_versions(library))
        for words in map(str.split, _told("--dyn-syms", library)):
            if len(words) >= 8 and words[0].rstrip(":").isdigit():
                name, _, version = words[7].partition("@")
                if words[6] != "UND":
                    has.add(name)
                elif words[4] != "WEAK":
                    wanted.add((name, version))
    missing = sorted(name for name in needed if name.startswith(_LIBRARIES) and not (folder / name).exists())
    runtime = next((name for name in missing if name.startswith("libcudart")), "")
    for library_name in missing:
        functions: dict[str, set[str]] = {}
        for name, version in wanted:
            if (
                name not in has
                and (version in owner or name.startswith(_FUNCTIONS))
                and owner.get(version, runtime) == library_name
            ):
                functions.setdefault(version, set()).add(name)
        _compile(folder, library_name, functions)
    return missing


def _told(about: str, library: Path) -> list[str]:
    return subprocess.run(["readelf", "-W", about, str(library)], capture_output=True, text=True, check=True).stdout.splitlines()


def _versions(library: Path) -> Iterator[tuple[str, str]]:
    """The versions of symbols that a library asks for, each with the library that it asks."""
    file = ""
    for words in map(str.split, _told("-V", library)):
        if "File:" in words:
            file = words[words.index("File:") + 1]
        elif "Name:" in words:
            yield words[words.index("Name:") + 1], file


def _compile(folder: Path, name: str, functions: dict[str, set[str]]) -> None:
    source, script = folder / "standin.c", folder / "standin.map"
    every = sorted(set().union(*functions.values()))
    source.write_text("".join(f"int {one}(void) {{ return {_NO_DEVICE}; }}\n" for one in every) or "static int nothing;\n")
    versions = [
        f"{version} {{ global: {' '.join(f'{one};' for one in sorted(ones))} }};\n"
        for version, ones in functions.items()
        if version
    ]
    script.write_text("".join(versions))
    command = ["cc", "-w", "-fno-builtin", "-shared", "-fPIC", "-o", str(folder / name), f"-Wl,-soname,{name}", str(source)]
    subprocess.run([*command, *([f"-Wl,--version-script={script}"] if versions else [])], check=True)
    source.unlink()
    script.unlink()
