"""The queries of Nexmark: an auction house whose persons, auctions and bids are one stream of events.

events.py       the generator of events, and the files it writes
tables.py       the three tables as sources of a job
one_by_one.py   q0 q1 q2 q14 q21 q22    each bid by itself
windows.py      q5 q7 q8 q11 q12        windows of time
joins.py        q3 q4 q9 q20            auctions with their sellers and with their bids
totals.py       q15 q16 q17 q18 q19     totals, the newest and the best, per day, channel or auction
expected.py     the same in DuckDB's SQL, and what of the results has to be equal
flink.py        the same in Flink's SQL
"""
