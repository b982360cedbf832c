"""Print the table of docs/symbols.md that says which files cite which label of the paper."""

import re
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "hpml"
LABEL = r"`((?:alg|app|ass|cor|def|eq|ex|lem|prop|rem|sec|subsec|thm):[A-Za-z0-9_\-]+)`"

found: dict[str, set[str]] = {}
for path in SOURCE.rglob("*.py"):
    for label in re.findall(LABEL, path.read_text()):
        found.setdefault(label, set()).add(path.relative_to(SOURCE).as_posix())
print("| label | files under `src/hpml` |\n|---|---|")
for label, files in sorted(found.items()):
    print(f"| `{label}` | {', '.join(f'`{file}`' for file in sorted(files))} |")
