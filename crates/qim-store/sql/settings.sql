-- What a writing connection sets before anything else.
--
-- auto_vacuum      takes effect only while the file is still empty: it comes before the first table and before WAL
-- journal_mode     readers and the writers of both daemons do not wait for one another; answers the mode it now has
-- synchronous      FULL: in WAL mode, NORMAL forgets the last commits when the power fails, and what `put` has
--                  acknowledged may leave the hot tier
-- secure_delete    a deleted record is overwritten with zeros: an expired message is gone from the file, too
-- journal_size_limit  a burst does not leave a large WAL file behind: 64 MiB
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA synchronous = FULL;
PRAGMA secure_delete = ON;
PRAGMA journal_size_limit = 67108864;
PRAGMA journal_mode = WAL;
