"""Where the projection helps, where it does nothing and where it hurts: never more than the statistics say."""

from collections.abc import Mapping, Sequence

from hpml.report.page import Section
from hpml.report.parts import ListPart, Mark, Part, TablePart
from hpml.report.sweep.analysis import Analysis, Verdict
from hpml.report.sweep.paper import column_of
from hpml.report.sweep.words import fixed, interval, listed, number
from hpml.statistics.cautions import too_few

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
        "still be called better or worse, likely or not."
    )
    few = too_few(min((min(verdict.seeds) for verdict in judged), default=0)) if judged else ""
    parts: list[Part] = [ListPart(items)]
    if len({verdict.environment for verdict in judged}) > 1:
        parts.append(_matrix(analysis.verdicts, [method.name for method in variants], study.environments, "Verdicts"))
    if any(study.method(name).projected for name, _ in analysis.later):
        title = "Verdicts further on, where some methods have more steps"
        parts.append(_matrix(analysis.later, [method.name for method in variants], study.environments, title))
    parts += [RULE, *([few] if few else []), *([chance] if len(judged) > 1 else []), *_details(judged)]
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


def _matrix(
    verdicts: Mapping[tuple[str, str], Verdict], methods: Sequence[str], environments: Sequence[str], title: str
) -> TablePart:
    places = [name for name in environments if any((method, name) in verdicts for method in methods)]
    rows = []
    for method in methods:
        found = [verdicts.get((method, environment)) for environment in places]
        if any(found):
            rows.append([method, *(_word(verdict) for verdict in found)])
    note = "None shown: no difference that so many seeds can show."
    return TablePart(["Method", *(column_of(name) for name in places)], rows, note, title, tight=True)


def _word(verdict: Verdict | None) -> str | Mark:
    if verdict is None:
        return "–"
    return Mark("none shown" if verdict.word == "none" else verdict.word, TONES[verdict.word])


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
        _word(v),
    ]


def _place(verdict: Verdict) -> str:
    return f"{column_of(verdict.environment)}{' (likely)' if verdict.word.startswith('likely') else ''}"
