"""Build llama.cpp for this very processor: python tools/build_peers.py [folder]

The source comes from the package index, in the source distribution of llama-cpp-python. The folder
(.peers by default) receives llama-server, llama-bench, llama-perplexity, and about.json, which
describes the build. JOBS=2 sets the number of concurrent compilers; PEER_FLAGS adds flags for
cmake, for example for a processor without AVX-512:

    PEER_FLAGS="-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON" make peers
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

VERSION: Final = "0.3.36"  # of llama-cpp-python
PROGRAMS: Final = ("llama-server", "llama-bench", "llama-perplexity")
FLAGS: Final = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=ON",
    "-DBUILD_SHARED_LIBS=OFF",
    *("-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF"),
    *("-DLLAMA_BUILD_UI=OFF", "-DLLAMA_USE_PREBUILT_UI=OFF"),  # without web pages and downloads
    *("-DLLAMA_CURL=OFF", "-DLLAMA_OPENSSL=OFF"),
)
# GCC 12 assumes that the instruction reads eight bytes, and drops the writes of the other bytes:
# the next instruction is then illegal.
_AMX: Final = Path("ggml/src/ggml-cpu/amx/mmq.cpp")
_CONFIGURE: Final = "_tile_loadconfig(&tc);"
_WRITTEN: Final = 'asm volatile("" : : "r"(&tc) : "memory");'


class BuildFailed(Exception):
    """The build failed; the message says what to do."""


def build(folder: Path, jobs: int, flags: Sequence[str]) -> None:
    for tool, remedy in (("cmake", "cmake"), ("c++", "a C++ compiler such as g++")):
        if shutil.which(tool) is None:
            raise BuildFailed(f"{tool} is not here; install {remedy}, then run `make peers` again.")
    work = folder / "build"
    work.mkdir(parents=True, exist_ok=True)
    source = fetch(work)
    mend(source)
    objects = work / "objects"
    run(["cmake", "-S", source, "-B", objects, *flags], work / "configure.log")
    print(f"compiling with {jobs} jobs: about 20 minutes with two", flush=True)
    targets = ["--target", *PROGRAMS, "--parallel", str(jobs)]
    run(["cmake", "--build", objects, *targets], work / "compile.log")
    for program in PROGRAMS:
        shutil.copy2(objects / "bin" / program, folder / program)
    kind = "build" if "-DGGML_NATIVE=OFF" in flags else "native build"
    about = {"build": kind, "from": {"llama-cpp-python": VERSION}, "flags": list(flags)}
    (folder / "about.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    shutil.rmtree(work)


def fetch(work: Path) -> Path:
    """Download the source distribution; return llama.cpp's folder of it."""
    wanted = f"llama-cpp-python=={VERSION}"
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", "llama-cpp-python"]
    print(f"fetching the source of {wanted}", flush=True)
    run([*pip, "--dest", work, wanted], work / "fetch.log")
    (archive,) = work.glob("llama_cpp_python-*.tar.gz")
    inside = f"{archive.name.removesuffix('.tar.gz')}/vendor/llama.cpp"
    with tarfile.open(archive) as tar:
        members = [member for member in tar if member.name.startswith(f"{inside}/")]
        tar.extractall(work, members, filter="data")
    archive.unlink()
    return work / inside


def mend(source: Path) -> None:
    """Patch the source so that AMX's configuration is written completely before it is loaded."""
    text = (source / _AMX).read_text(encoding="utf-8")
    mended = text.replace(_CONFIGURE, f"{_WRITTEN} {_CONFIGURE}")
    (source / _AMX).write_text(mended, encoding="utf-8")


def run(command: Sequence[str | Path], log: Path) -> None:
    # The build asks git for its commit; without a ceiling, git would answer with this repository's.
    outside = {**os.environ, "GIT_CEILING_DIRECTORIES": str(log.parent.resolve())}
    with log.open("wb") as file:
        done = subprocess.run(
            list(map(str, command)), stdout=file, stderr=subprocess.STDOUT, env=outside
        )
    if done.returncode != 0:
        last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        raise BuildFailed(
            f"{Path(command[0]).name} failed ({' '.join(last)}); read {log}, mend it and run "
            "`make peers` again."
        )


def asked_jobs() -> int:
    jobs = os.environ.get("JOBS") or "2"
    if not jobs.isdecimal() or int(jobs) < 1:
        raise BuildFailed(f"JOBS={jobs} is no number of compilers; give 1 or more.")
    return int(jobs)


def asked_flags() -> list[str]:
    try:
        return shlex.split(os.environ.get("PEER_FLAGS", ""))
    except ValueError as error:
        raise BuildFailed(f"PEER_FLAGS cannot be split ({error}); mend its quotes.") from None


def main(folder: str = ".peers") -> int:
    try:
        build(Path(folder), asked_jobs(), [*FLAGS, *asked_flags()])
    except BuildFailed as error:
        print(f"make peers: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        reason = f"{error.strerror}: {error.filename}"
        print(f"make peers: {reason}; give a folder that can be written.", file=sys.stderr)
        return 2
    print(f"built {folder}/llama-server; `forerun bench speculation --peers llamacpp` uses it")
    return 0


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
