"""Write the last table of docs/symbols.md: which files cite which label of the paper. The tests ask for it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE, PAGE = ROOT / "src" / "hpml", ROOT / "docs" / "symbols.md"
LABEL = r"`((?:alg|app|ass|cor|def|eq|ex|lem|prop|rem|sec|subsec|thm):[A-Za-z0-9_\-]+)`"
HEAD = "## Labels\n\n| label | files |\n|---|---|\n"

found: dict[str, set[str]] = {}
for path in SOURCE.rglob("*.py"):
    for label in re.findall(LABEL, path.read_text()):
        found.setdefault(label, set()).add(path.relative_to(SOURCE).as_posix())
rows = [
    f"| `{label}` | {', '.join(f'`{file}`' for file in sorted(files))} |\n" for label, files in sorted(found.items())
]
PAGE.write_text(PAGE.read_text().split("## Labels\n")[0] + HEAD + "".join(rows))
