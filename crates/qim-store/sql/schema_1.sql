-- Schema version 1, from an empty file. Runs inside a transaction that then sets user_version.
--
-- conversations  never deleted from: a high-water mark outlives the records
-- records        clustered by conversation, so that a page is one run of the tree; `expires_at` is NULL for a held
--                record; `digest` is XXH3-64 of `record`; both 64-bit values are stored as signed ones
-- client_ids     what was committed under a client id; `forget_at` is 90 days after `created_at`, or when the record
--                expires where that is later
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
  digest INTEGER NOT NULL,
  record BLOB NOT NULL,
  PRIMARY KEY (conv, seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX records_by_expiry ON records (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE client_ids (
  conv INTEGER NOT NULL,
  id_hash BLOB NOT NULL,
  seq INTEGER NOT NULL,
  body_digest INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER,
  forget_at INTEGER NOT NULL,
  PRIMARY KEY (conv, id_hash)
) STRICT, WITHOUT ROWID;

CREATE INDEX client_ids_by_end ON client_ids (forget_at);
