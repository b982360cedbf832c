"""What people see: tables in the terminal, figures, and a page that opens offline. Draws and writes only.

A page is made of sections, a section of paragraphs and parts; the builders in `figures` make parts from plain arrays:

    from hpml.report.figures.curves import Curve, curves
    from hpml.report.figures.layout import Track
    from hpml.report.figures.portrait import Portrait, split_portrait
    from hpml.report.page import Fact, Page, Section, write_page
    from hpml.report.parts import CodePart, ListPart, Mark, TablePart

    field = Portrait(points, F, x=axis, y=axis, potential=grid, outline=rim, tracks=[Track("raw", path, "@residual")])
    split = split_portrait(field, direction, residual, "F = potential part + residual", "What to see, in a line.")
    gap = curves([Curve("raw", steps, median, low, high)], "Gap", "Lower is better.", "steps", "gap", y_log=True)
    table = TablePart(["rule", "gap", "bound"], [["raw", 0.31, Mark("fails", "bad")]], "gap: after 1,000 steps.")
    page = Page(
        "Does it go in circles?",
        "**80 %** of the field's energy circulates.",
        [Section("The split", ["One paragraph, with `code` and **strong** words."], [split, gap, table])],
        facts=[Fact("0.80", "share of circulation")],
    )
    write_page(page, folder / "report.html")

- `figures.portrait`: portraits, split_portrait; `figures.simplex`: simplex_plot; `figures.cycle`: cycle_graph,
  loop_text; `figures.curves`: curves (lines, points, bands); `figures.bars`: bars, share_bar;
  `figures.samples`: sample_map; `figures.space`: space_plot; `figures.heat`: heat_map;
  `figures.layout`: grid puts several figures into one.
- Colours are roles: "@potential", "@residual", "@ink", "@soft", "@faint", "@s0" to "@s7".
- `static` draws the paper's four panels for PNG and PDF.
"""
