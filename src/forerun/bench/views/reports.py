"""Sheets and a figure for the reports of benches other than speculation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any, Final

from forerun.bench.records.report import Report
from forerun.bench.records.summary import peer_label
from forerun.bench.views.gpu import gpu_sheet
from forerun.bench.views.serving import openai_sheet, serve_sheet
from forerun.bench.views.sheet import Sheet, title
from forerun.theory.canvas import canvas

_KERNELS: Final = (
    "ms and GB/s: one row times all weights; of read: of the speed at which memory is read; "
    "×n: the time of n rows in units of one"
)
_ACCEPTANCE: Final = "tokens a pass: tokens emitted ÷ target passes that emitted any"
_HEADS: Final = (
    "α at temperature 1 at each place, if all before it are accepted, on held-out texts; tokens a "
    "pass: greedy, with a guess at every place"
)
_PASSES: Final = "one target pass, empty context; ratio: in plain passes, taken within a round"
_PEER: Final = "llama.cpp"
_PROFILE: Final = (
    "of read: of the {:.1f} GB/s at which as many bytes as the weights are read again and again, "
    "from memory or a cache; steps are scaled down where they take longer apart than together; "
    "product, norm (with SiLU), rows and draw: all such steps of a pass in a row; attention: what "
    "a pass takes less without it; "
    "Python: what a token takes longer than all steps"
)
_PYTHON: Final = (
    ", {:.1%} to {:.1%} of it in the middle half of the rounds; less than Python runs where other "
    "threads work meanwhile, and below 0 where it is lost in noise"
)
_STARTUP: Final = "beyond weights: the peak less the size of the weight file, which is mapped"
_STARTS: Final = ("first_token_s", "whole_s", "cpu_s")
_PARITY: Final = (
    "the first place of each text at which the reference kernels would have chosen another token; "
    "margins: between the best two tokens, in logits"
)


def report_sheet(report: Report) -> Sheet:
    """Return the sheet of a report, as its command and `forerun bench show` print it."""
    return _SHEETS[report["measured"]](report)


def _title(report: Report) -> str:
    settings = report.get("settings", report)
    kernels = report.get("kernels", settings.get("kernels"))
    return title(
        report["measured"],
        report.get("model", {}),
        report["machine"],
        {**settings, "kernels": kernels},
        is_complete=report["is_complete"],
    )


def _kernels(report: Report) -> Sheet:
    """Return a row per format: size, speed for one row, and the cost of more rows."""
    num_threads, speed = report["num_threads"], report["read_bytes_per_second"] / 1e9
    rows = [
        [
            product["format"],
            f"{product['bytes'] / 1e6:.0f}",
            f"{product['bytes'] / product['bytes_per_second'] * 1e3:.2f}",
            f"{product['bytes_per_second'] / 1e9:.1f}",
            f"{product['share_of_bandwidth']:.0%}",
            *(f"{ratio:.1f}" for num, ratio in product["ratios"].items() if num != "1"),
        ]
        for product in report["products"]
    ]
    more = [f"×{num}" for num in report["products"][0]["ratios"] if num != "1"]
    groups = [["MB", "ms", "GB/s", "of read"], more]
    where = f"{_title(report)} · {num_threads} threads · memory reads at {speed:.1f} GB/s"
    return Sheet(where, ["format"], groups, rows, legend=[_KERNELS])


def _acceptance(report: Report) -> Sheet:
    """Return a row per class and a column per temperature."""
    cells: dict[str, dict[float, str]] = {}
    for row in report["rows"]:
        cells.setdefault(row["class"], {})[row["temperature"]] = f"{row['tokens_per_pass']:.2f}"
    warmth = list(dict.fromkeys(row["temperature"] for row in report["rows"]))
    rows = [[name, *(found.get(t, "–") for t in warmth)] for name, found in cells.items()]
    rows.append(["mean", *(f"{mean:.2f}" for mean in report["mean"].values())])
    headings = [f"T={t:g}" for t in warmth]
    return Sheet(_title(report), ["class"], [headings], rows, legend=[_ACCEPTANCE])


def _heads(report: Report) -> Sheet:
    """Return a row per kind of head, the best first."""
    kinds = {kind: found for kind, found in report["kinds"].items() if "error" not in found}
    order = sorted(kinds, key=lambda kind: -float(kinds[kind]["tokens_per_pass"]))
    num_places = max((len(found["alpha"]) for found in kinds.values()), default=0)
    rows = [
        [
            kind,
            f"{kinds[kind]['num_weights'] / 1e6:.1f} M",
            str(kinds[kind]["steps"]),
            *(f"{alpha:.2f}" for alpha in kinds[kind]["alpha"]),
            f"{kinds[kind]['tokens_per_pass']:.2f}",
        ]
        for kind in order
    ]
    places = [f"α {idx + 1}" for idx in range(num_places)]
    headings = ["weights", "steps", *places, "tokens a pass"]
    return Sheet(_title(report), ["kind"], [headings], rows, legend=[_HEADS])


def _passes(report: Report) -> Sheet:
    rows = [
        [size, f"{row['median_s'] * 1e3:.1f}", f"{row['ratio']:.2f}"]
        for size, row in report["passes"].items()
    ]
    return Sheet(_title(report), [], [["tokens", "ms", "ratio"]], rows, legend=[_PASSES])


def _profile(report: Report) -> Sheet:
    token, speed = report["token_s"], report["read_bytes_per_second"]
    rows = []
    for name, part in report["parts"].items():
        seconds, num_bytes = part["seconds"], part["bytes"]
        reads = gigabytes = "–"
        if num_bytes and seconds:
            each = num_bytes / seconds
            reads, gigabytes = f"{each / speed:.0%}", f"{each / 1e9:.1f}"
        rows.append([name, f"{seconds * 1e3:.2f}", f"{seconds / token:.1%}", gigabytes, reads])
    where = f"{_title(report)} · a token takes {token * 1e3:.1f} ms after {report['num_context']}"
    legend = _PROFILE.format(speed / 1e9)
    quartiles = report.get("python_quartiles")
    legend += _PYTHON.format(*quartiles) if quartiles else ", 0 where that cannot be seen"
    return Sheet(where, ["part"], [["ms", "of token", "GB/s", "of read"]], rows, legend=[legend])


def _startup(report: Report) -> Sheet:
    rows = [
        [str(number), *(_seconds(start.get(name)) for name in _STARTS)]
        + [_megabytes(start["peak_bytes"], less) for less in (0, report["weight_bytes"])]
        for number, start in enumerate(report["starts"], start=1)
    ]
    headings = ["start", "first token s", "whole s", "CPU s", "peak MB", "beyond weights MB"]
    torch = "torch was imported" if report["torch"] else "torch was not imported"
    middle = median(start["first_token_s"] for start in report["starts"])
    where = f"{_title(report)} · median {middle:.2f} s to the first token"
    return Sheet(where, [], [headings], rows, legend=[_STARTUP, torch])


def _seconds(found: float | None) -> str:
    return "–" if found is None else f"{found:.2f}"


def _megabytes(num_bytes: int | None, less: int) -> str:
    return "–" if num_bytes is None else f"{(num_bytes - less) / 1e6:.0f}"


def _batch(report: Report) -> Sheet:
    rows = [*_together(report), *_load(report), *_offline(report)]
    return Sheet(_title(report), ["part", "measured"], [["found", "of"]], rows)


def _together(report: Report) -> Iterator[list[str]]:
    if found := report.get("together"):
        yield ["together", "time together ÷ the sum of the times alone", *_median(found["ratio"])]
        yield _tokens("together", found)


def _load(report: Report) -> Iterator[list[str]]:
    if found := report.get("load"):
        for num, ratio in found["ratio"].items():
            yield ["load", f"{num} in flight: speed ÷ speculation off", *_median(ratio)]
        yield _tokens("load", found)


def _offline(report: Report) -> Iterator[list[str]]:
    if found := report.get("offline"):
        for name, ratio in found["ratio"].items():
            peer = peer_label(name, found["servers"][name])
            yield ["offline", f"tokens/s ÷ {peer}'s", *_median(ratio)]


def _median(ratio: Report | None) -> list[str]:
    if ratio is None:
        return ["–", "0"]
    text = f"{ratio['median']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]"
    return [text, str(ratio["num"])]


def _tokens(part: str, found: Report) -> list[str]:
    return [part, "tokens", "the same" if found["same_tokens"] else "DIFFERENT", ""]


def _parity(report: Report) -> Sheet:
    rows = []
    for one in report["prompts"]:
        if (p := one["parting"]) is not None:
            margins = (f"{p['our_margin']:.5f}", f"{p['their_margin']:.5f}")
            share = f"{one['num_different']} of {one['num_tokens']}"
            tokens = (repr(p["ours"]), repr(p["theirs"]))
            rows.append([one["prompt"], str(p["at"]), *tokens, *margins, share])
    left = ("ours", "reference")
    groups = [["at", *left], ["our margin", "its margin"], ["different"]]
    same = f" · {report['num_same']} of {len(report['prompts'])} texts the same"
    if not rows:
        return Sheet(_title(report) + same, [], [], [])
    return Sheet(_title(report) + same, ["prompt"], groups, rows, left, [_PARITY])


def _proof(report: Report) -> Sheet:
    keys = ("num_cells", "num_tokens", "target_passes", "accepted_tokens", "num_different")
    headings = ["runs", "tokens", "passes", "accepted", "different"]
    return Sheet(_title(report), [], [headings], [[str(report[key]) for key in keys]])


def _beside(report: Report) -> Sheet:
    rows = []
    for num_threads, contenders in report["threads"].items():
        for name in contenders:
            row = [num_threads, name]
            for what in ("plain", "prompt"):
                found, (low, high) = contenders[name][what], rounds_beside(contenders, name, what)
                ratio = f"{found['ratio']:.2f} [{low:.2f}, {high:.2f}]"
                row += [f"{found['tokens_per_second']:.2f}", ratio]
            rows.append(row)
    peer = report["settings"].get("peer", {}).get("build", "")
    headings = ["plain tok/s", "ratio", "prompt tok/s", "ratio"]
    title = f"{_title(report)} · {_PEER}: {peer}" if peer else _title(report)
    return Sheet(title, ["threads", "who"], [headings], rows, legend=[_BESIDE])


def rounds_beside(contenders: Mapping[str, Any], name: str, what: str) -> tuple[float, float]:
    """Return the smallest and the largest ratio to llama.cpp over all rounds."""
    runs = zip(contenders[name][what]["runs"], contenders[_PEER][what]["runs"], strict=True)
    ratios = [own / theirs for own, theirs in runs]
    return min(ratios), max(ratios)


def _kl_divergence(report: Report) -> Sheet:
    """Return a row per way to compute the logits."""
    rows = [
        [
            name,
            f"{found['mean_kl']:.3g}",
            f"{found['standard_error']:.1g}",
            f"{found['kl_99th_percentile']:.3g}",
            f"{found['top1_agreement']:.2%}",
            f"{found['num_tokens']:,}",
        ]
        for name, found in report["laws"].items()
    ]
    headings = ["mean KL", "± standard error", "99th percentile", "same top token", "tokens"]
    where = f"{_title(report)} · from {report['settings']['from']}"
    return Sheet(where, ["logits"], [headings], rows)


def _simulation(report: Report) -> Sheet:
    """Return the smallest / median of the cells, by number of concurrent requests."""
    asked, groups = report["asked"], dict[str, list[Report]]()
    for cell in report["cells"]:
        name = f"{cell['num_slots']}{', noisy' * cell['is_noisy']}"
        groups.setdefault(name, []).append(cell)
    rows = [
        [
            name,
            str(len(cells)),
            *(f"{min(r):.3f} / {median(r):.3f}" for r in ([c[k] for c in cells] for k in asked)),
            str(sum(any(cell[key] < asked[key] for key in asked) for cell in cells)),
        ]
        for name, cells in groups.items()
    ]
    wanted = [f"÷ {key.removeprefix('to_')} ≥ {least:g}" for key, least in asked.items()]
    where = "the controller on a simulated clock: smallest / median"
    return Sheet(where, ["requests"], [["cells", *wanted, "missed"]], rows)


_BESIDE: Final = "ratio: median, and the least and the largest of the rounds"
_SHEETS: Final[Mapping[str, Callable[[Report], Sheet]]] = {
    "acceptance": _acceptance,
    "heads": _heads,
    "kernels": _kernels,
    "passes": _passes,
    "gpu": lambda report: gpu_sheet(report, _title(report)),
    "profile": _profile,
    "startup": _startup,
    "batch": _batch,
    "parity": _parity,
    "proof": _proof,
    "beside-llamacpp": _beside,
    "serve": lambda report: serve_sheet(report, _title(report)),
    "kl-divergence": _kl_divergence,
    "simulation": _simulation,
    "openai-suite": lambda report: openai_sheet(report, _title(report)),
}


def save_kernel_plot(report: Report, path: Path) -> None:
    """Draw the cost of n rows in units of one row, a line per format, to .png, .pdf or .svg."""
    products = report["products"]
    with canvas(path, 12, 5) as figure:
        left, right = figure.subplots(1, 2)
        left.set_title("Cost of more rows")
        for product in products:
            rows, ratios = list(map(int, product["ratios"])), list(product["ratios"].values())
            left.plot(rows, ratios, marker="o", label=product["format"])
        left.set_xlabel("rows in one product")
        left.set_ylabel("time, in units of one row")
        left.legend()
        right.set_title("Weights read per second, one row")
        names = [product["format"] for product in products]
        right.barh(names, [product["bytes_per_second"] / 1e9 for product in products])
        right.axvline(report["read_bytes_per_second"] / 1e9, linestyle="--", color="black")
        right.set_xlabel("GB/s; dashed: memory alone")
        right.invert_yaxis()
