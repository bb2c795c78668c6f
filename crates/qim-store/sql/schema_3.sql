-- Schema version 3, from version 2. Runs inside a transaction that then sets user_version.
--
-- gaps  seqs whose records Redis lost, from `first` to `last`, and when that was noticed; never deleted from
CREATE TABLE gaps (
  conv INTEGER NOT NULL,
  first INTEGER NOT NULL,
  last INTEGER NOT NULL,
  noticed_at INTEGER NOT NULL,
  PRIMARY KEY (conv, first)
) STRICT, WITHOUT ROWID;
