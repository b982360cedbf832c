"""Run folders as `hpml train` leaves them, with numbers that the test chooses."""

import json
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet

from hpml.experiment.config import complete, to_json, train_config

BATCH = 64


def config_of(env="matrix/stag_hunt", seeds=(0,), updates=20, **options):
    """The stored config of a run whose updates have 64 steps."""
    small = {"environments": 8, "rollout": 8, "seed": seeds[0], "seeds": len(seeds), "steps": BATCH * updates}
    return to_json(complete(train_config(env, out="run", **(small | options))))


def columns_of(seeds, updates, value, every=1, first=0):
    """Rows of all seeds from `first` to `updates`: `value(seed, update)` is the evaluated return, every so often."""
    rows = [(update, seed) for update in range(first, updates + 1) for seed in seeds]
    update, seed = (np.array(column) for column in zip(*rows, strict=True))
    found = np.array([value(s, u) for u, s in rows], float)
    evaluated = update % every == 0
    known = np.where(evaluated, found, np.nan)
    trained = np.where(update > 0, found - 1.0, np.nan)
    return {
        "update": update,
        "steps": update * BATCH,
        "seed": seed,
        "return": trained,
        "evaluation/return": known,
        "evaluation/collective_return": 2 * known,
        "evaluation/switch_rate": np.where(evaluated, 0.25, np.nan),
        "evaluation/switched": np.where(evaluated & (update > 0), update % 2, np.nan),
        "nonpot_held_out": np.where(update > 0, 0.5, np.nan),
        "identifiable": np.where(update > 0, 0.1, np.nan),
        "residual_energy": np.where(update > 0, update / 10, np.nan),
        "residual_clean": np.where(update > 0, update / 20, np.nan),
        "seconds/collect": np.where(update > 0, 0.02, np.nan),
        "seconds/learn": np.where(update > 0, 0.02, np.nan),
    }


def write_part(folder, columns, name=None):
    """One Parquet part; NaN is written as null, as the writer of metrics does."""
    table = pyarrow.table(
        {
            key: pyarrow.array(value, mask=np.isnan(value) if value.dtype.kind == "f" else None)
            for key, value in columns.items()
        }
    )
    path = folder / "metrics" / f"{int(columns['update'].max()) if name is None else name:010d}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(table, path)
    return path


def write_run(folder, value=lambda seed, update: float(seed), seeds=(0,), updates=20, every=1, upto=None, **options):
    """A run folder in two parts; `upto` is how far it has got, and `options` go to its config."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config_of(seeds=seeds, updates=updates, **options)))
    versions = {"hpml": "0.1.0", "jax": "0.10.2", "device": "cpu"}
    (folder / "versions.json").write_text(json.dumps({"starts": [{"update": 0, "versions": versions}]}))
    last = updates if upto is None else upto
    columns = columns_of(seeds, last, value, every)
    half = columns["update"] <= last // 2
    for some in (half, ~half):
        if some.any():
            write_part(folder, {name: column[some] for name, column in columns.items()})
    return folder


def contents(folder):
    """Every file under a folder with its bytes."""
    return {path: path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}
