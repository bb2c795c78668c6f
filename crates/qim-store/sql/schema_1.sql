-- Schema version 1, from an empty file. Runs inside a transaction that then sets user_version.
--
-- conversations  never deleted from: a high-water mark outlives the records
-- records        clustered by conversation, so that a page is one run of the tree; `expires_at` is NULL for a held record
-- client_ids     what was committed under client ids, many in one value (archive/id_chunks.rs), which would take most of
--                its pages' room in a table without rowid; `sweep_at` is when some of them may be forgotten
-- All dates are milliseconds since the Unix epoch.
CREATE TABLE conversations (
  id INTEGER PRIMARY KEY,
  tenant TEXT NOT NULL,
  conversation TEXT NOT NULL,
  high_water INTEGER NOT NULL,
  UNIQUE (tenant, conversation)
) STRICT;

CREATE TABLE records (
  conv INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  expires_at INTEGER,
  record BLOB NOT NULL,
  PRIMARY KEY (conv, seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX records_by_expiry ON records (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE client_ids (
  conv INTEGER NOT NULL,
  chunk INTEGER NOT NULL,
  sweep_at INTEGER NOT NULL,
  ids BLOB NOT NULL,
  UNIQUE (conv, chunk)
) STRICT;

CREATE INDEX client_ids_by_sweep ON client_ids (sweep_at);
