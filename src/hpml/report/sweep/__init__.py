"""The report of `hpml report`: run folders in, tables, figures, a page and files for other programs out."""
