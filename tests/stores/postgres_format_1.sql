CREATE TABLE meta (key text COLLATE "C" PRIMARY KEY, value text NOT NULL);
CREATE SEQUENCE run_number INCREMENT BY 64;
CREATE TABLE address (
  number bigint PRIMARY KEY DEFAULT nextval('run_number'),
  run_id text COLLATE "C" NOT NULL UNIQUE
);
CREATE TABLE head (
  log smallint PRIMARY KEY, position bigint NOT NULL,
  hub_seq bigint NOT NULL, hub_crc bigint NOT NULL, recent bigint NOT NULL,
  live bigint NOT NULL, parked bigint NOT NULL, waiting bigint NOT NULL,
  version bigint NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
INSERT INTO head (log, position, hub_seq, hub_crc, recent, live, parked, waiting, version)
  VALUES (0, 0, 0, 0, 0, 0, 0, 0, 0);
CREATE TABLE worker (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text NOT NULL, kind text NOT NULL, live boolean NOT NULL, expires timestamptz NOT NULL,
  group_no bigint NOT NULL DEFAULT 0, agents text[] COLLATE "C", capacity bigint,
  drains boolean NOT NULL DEFAULT false, format integer NOT NULL DEFAULT 1,
  since timestamptz NOT NULL DEFAULT clock_timestamp(), pid integer, connected timestamptz
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE TABLE tree (
  root bigint PRIMARY KEY, owner bigint, epoch bigint NOT NULL DEFAULT 0,
  want text COLLATE "C" NOT NULL, live bigint NOT NULL, needs integer NOT NULL DEFAULT 1
);
CREATE INDEX tree_owner ON tree (owner);
CREATE TABLE run (
  number bigint PRIMARY KEY,
  run_id text COLLATE "C" NOT NULL, root_run_id text COLLATE "C" NOT NULL,
  parent_run_id text COLLATE "C", agent text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL,
  session_key text COLLATE "C" NOT NULL, kind text COLLATE "C" NOT NULL,
  descriptor text COLLATE "C", status text COLLATE "C" NOT NULL, inbox text COLLATE "C" NOT NULL,
  ready smallint NOT NULL, seq bigint NOT NULL, in_seq bigint NOT NULL, chain bigint NOT NULL,
  waiting bigint NOT NULL, messages bigint NOT NULL, born bigint NOT NULL,
  created_at bigint NOT NULL, wake_at bigint, recent bigint NOT NULL
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX run_id ON run (run_id);
CREATE INDEX run_ready ON run (born) WHERE ready = 1;
CREATE INDEX run_timed ON run (wake_at) WHERE wake_at IS NOT NULL AND status <> 'ended';
CREATE INDEX run_live ON run (agent) WHERE status <> 'ended';
CREATE INDEX run_key ON run (session_key) WHERE session_key <> '' AND inbox = 'open';
CREATE INDEX run_recent ON run (kind, recent)
  WHERE inbox = 'open' AND kind IN ('user', 'heartbeat');
CREATE INDEX run_child ON run (root_run_id) WHERE parent_run_id IS NOT NULL;
CREATE INDEX run_identity ON run (descriptor)
  WHERE inbox = 'open' AND kind IN ('user', 'cron', 'heartbeat');
CREATE INDEX run_spoken_to ON run (recent, born) WHERE parent_run_id IS NULL AND kind IN ('', 'user');
CREATE TABLE event (
  position bigint PRIMARY KEY, run bigint NOT NULL, root bigint NOT NULL,
  lane text COLLATE "C" NOT NULL, seq bigint NOT NULL, type text COLLATE "C" NOT NULL,
  crc bigint NOT NULL, body text COLLATE "C" NOT NULL, writer bigint NOT NULL DEFAULT 0
);
CREATE INDEX event_run ON event (run, position);
CREATE INDEX event_hub ON event (root) WHERE lane = 'hub';
CREATE TABLE waiting (
  run bigint NOT NULL, seq bigint NOT NULL, position bigint NOT NULL, PRIMARY KEY (run, seq)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE TABLE accepted (
  run bigint NOT NULL, source text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL,
  position bigint NOT NULL, PRIMARY KEY (run, source, key)
);
CREATE TABLE note (
  key text COLLATE "C" PRIMARY KEY, value text COLLATE "C" NOT NULL,
  version bigint NOT NULL DEFAULT 0
);
CREATE TABLE secret (
  key text COLLATE "C" PRIMARY KEY, value bytea NOT NULL,
  version bigint NOT NULL, writer bigint NOT NULL
);
CREATE INDEX secret_version ON secret (version);
CREATE TABLE blob (digest text COLLATE "C" PRIMARY KEY, content bytea NOT NULL);
ALTER TABLE blob ALTER COLUMN content SET STORAGE EXTERNAL;
