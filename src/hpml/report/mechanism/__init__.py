"""The report of `hpml mechanism`: one page, the four panels for papers, and the numbers."""
