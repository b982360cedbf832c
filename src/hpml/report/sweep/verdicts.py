"""Where the projection helps, where it does nothing and where it hurts: never more than the statistics say."""

from collections.abc import Sequence

from hpml.report.page import Section
from hpml.report.parts import ListPart, Mark, Part, TablePart
from hpml.report.sweep.analysis import Analysis, Verdict
from hpml.report.sweep.paper import column_of
from hpml.report.sweep.words import fixed, interval, listed, number

TITLE = "Where it helps, where it does nothing, where it hurts"
TONES = {"better": "good", "worse": "bad", "likely better": "good", "likely worse": "bad", "none": "soft"}
RULE = (
    "The rule, for each scenario alone: **better** or **worse** where Welch's 95 % interval of the difference of mean "
    "final returns leaves out zero and the exact test of exchanged runs has p of at most 0.05; **likely** where only "
    "the interval says so, which rests on scores that are near normal; else there is no difference that so many seeds "
    "can show, which is not the same as no difference."
)


def verdict_section(analysis: Analysis) -> Section:
    """Each method with a projection against its own algorithm without one, scenario by scenario."""
    study = analysis.study
    variants = [method for method in study.methods if method.projected and study.baseline(method) is not None]
    if not variants:
        absent = "no method with a projection" if not any(m.projected for m in study.methods) else "no baseline"
        return Section(TITLE, [f"There is {absent} among these runs, so there is nothing to compare."])
    items = [sentence(analysis, method.name) for method in variants]
    judged = [v for v in analysis.verdicts.values() if study.method(v.method).projected]
    chance = (
        f"There are {len(judged)} comparisons here: were all methods alike, about {0.05 * len(judged):.1f} of them "
        "would "
        "still be called likely better or likely worse."
    )
    parts: list[Part] = [ListPart(items)]
    if len({verdict.environment for verdict in judged}) > 1:
        parts += _matrix(analysis, [method.name for method in variants], judged)
    parts += [RULE, *analysis.few, *([chance] if len(judged) > 1 else []), *_details(judged)]
    return Section(TITLE, parts=parts)


def sentence(analysis: Analysis, method: str) -> str:
    """What may be said about a method over all scenarios and in each."""
    own = [verdict for (name, _), verdict in analysis.verdicts.items() if name == method]
    if not own:
        return f"**{method}**: there is no scenario in which it and its baseline both have runs."
    helps = [_place(verdict) for verdict in own if verdict.word in ("better", "likely better")]
    hurts = [_place(verdict) for verdict in own if verdict.word in ("worse", "likely worse")]
    nothing = [_place(verdict) for verdict in own if verdict.word == "none"]
    words = [f"**{method}** against {own[0].against}:"]
    words.append(f"helps in {listed(helps, 11)};" if helps else "helps in none that the runs can show;")
    words.append(f"hurts in {listed(hurts, 11)};" if hurts else "hurts in none that the runs can show;")
    few = sorted({min(verdict.seeds) for verdict in own if verdict.word == "none"})
    seeds = f"{few[0]} seeds" if len(few) == 1 else f"{few[0]} to {few[-1]} seeds" if few else ""
    words.append(f"no difference that {seeds} can show in {listed(nothing, 11)}." if nothing else "settled in all.")
    overall = analysis.overall.get(method)
    if overall is not None and overall.chance.tasks > 1:
        words.append(f"Over {overall.chance.tasks} scenarios together: {overall.words}")
    return " ".join(words)


def _matrix(analysis: Analysis, methods: Sequence[str], judged: Sequence[Verdict]) -> list[Part]:
    places = [name for name in analysis.study.environments if any(v.environment == name for v in judged)]
    rows = []
    for method in methods:
        cells: list[str | Mark] = []
        for environment in places:
            verdict = analysis.verdicts.get((method, environment))
            if verdict is None:
                cells.append("–")
                continue
            word = "none shown" if verdict.word == "none" else verdict.word
            cells.append(Mark(word, TONES[verdict.word]))
        rows.append([method, *cells])
    return [
        TablePart(
            ["Method", *(column_of(name) for name in places)],
            rows,
            "None shown: no difference that so many seeds can show.",
            "Verdicts",
            tight=True,
        )
    ]


def _details(judged: Sequence[Verdict]) -> list[Part]:
    """A table a method; the note stands under the last."""
    columns = ["scenario", "seeds", "difference", "Welch 95 %", "P(better)", "bootstrap", "score", "p", "verdict"]
    note = (
        "Difference of the mean final return of an agent to the baseline's, in the scenario's units, with Welch's "
        "interval. P(better): the probability that a run beats a run of the baseline, with the percentile bootstrap "
        "interval (no width where runs do not overlap) and the score interval. p: exact, two-sided."
    )
    names = list(dict.fromkeys((v.method, v.against) for v in judged))
    return [
        TablePart(
            columns,
            [_row(v) for v in judged if v.method == method],
            note if (method, against) == names[-1] else "",
            f"{method} against {against}, in numbers",
            tight=True,
        )
        for method, against in names
    ]


def _row(v: Verdict) -> list[str | Mark]:
    return [
        column_of(v.environment),
        f"{v.seeds[0]} and {v.seeds[1]}" if v.seeds[0] != v.seeds[1] else str(v.seeds[0]),
        number(v.difference.value),
        interval(v.difference.interval),
        f"{v.chance.value:.2f}",
        fixed(v.chance.percentile, 2),
        fixed(v.chance.score, 2),
        f"{v.chance.p:.2g}",
        Mark("none shown" if v.word == "none" else v.word, TONES[v.word]),
    ]


def _place(verdict: Verdict) -> str:
    return f"{column_of(verdict.environment)}{' (likely)' if verdict.word.startswith('likely') else ''}"
