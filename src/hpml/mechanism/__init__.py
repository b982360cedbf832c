"""The mechanism experiments: small games where what circulates is known, raw against projected (`fig:part1`)."""
