"""The tables and functions of one line. `{s}` stands for its schema.

A change here is a new `STATE_FORMAT` and a migration; a store of a newer format is refused, never guessed at.
"""

from __future__ import annotations

from typing import LiteralString

STATE_FORMAT = 1

LINE_TABLES: LiteralString = """
CREATE SCHEMA {s};

CREATE TABLE {s}.line (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    topic text NOT NULL, topic_id text NOT NULL, origin jsonb NOT NULL,
    state_format int NOT NULL, created_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE {s}.views (
    name text PRIMARY KEY, fingerprint text NOT NULL, declaration text NOT NULL
);
CREATE TABLE {s}.frontier (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    token uuid NOT NULL, until jsonb NOT NULL, markers jsonb NOT NULL DEFAULT '{{}}',
    epoch bigint NOT NULL DEFAULT 0, generation int NOT NULL, watermark timestamptz, alive_at timestamptz
) WITH (fillfactor = 20);
CREATE TABLE {s}.generations (
    generation int PRIMARY KEY, start jsonb NOT NULL, until jsonb NOT NULL, cut jsonb, watermark timestamptz,
    folded text[], touched text[] NOT NULL DEFAULT '{{}}', rows_expired boolean NOT NULL DEFAULT false,
    read bigint NOT NULL DEFAULT 0, counted bigint NOT NULL DEFAULT 0, duplicates bigint NOT NULL DEFAULT 0,
    quarantined bigint NOT NULL DEFAULT 0, late bigint NOT NULL DEFAULT 0, id_checksum bigint NOT NULL DEFAULT 0,
    CHECK (read = counted + duplicates + quarantined),
    CHECK (cut IS NULL OR cut = until)
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX one_open_generation ON {s}.generations ((true)) WHERE cut IS NULL;
COMMENT ON COLUMN {s}.generations.folded IS 'fingerprints that every epoch folded; null while there is none';
COMMENT ON COLUMN {s}.generations.touched IS 'fingerprints that any epoch folded';

CREATE TABLE {s}.epochs (
    epoch bigint PRIMARY KEY, first_epoch bigint NOT NULL, generation int NOT NULL REFERENCES {s}.generations,
    start jsonb NOT NULL, until jsonb NOT NULL, partitions jsonb NOT NULL,
    read bigint NOT NULL, counted bigint NOT NULL, duplicates bigint NOT NULL, quarantined bigint NOT NULL,
    late bigint NOT NULL, id_checksum bigint NOT NULL, watermark timestamptz, folded text[] NOT NULL,
    committed_at timestamptz NOT NULL DEFAULT now(),
    CHECK (read = counted + duplicates + quarantined),
    CHECK (first_epoch <= epoch)
);
CREATE INDEX epochs_of_generation ON {s}.epochs (generation);
CREATE TABLE {s}.seen_ids (
    epoch bigint PRIMARY KEY, generation int NOT NULL, ids int NOT NULL, newest_log_time timestamptz NOT NULL,
    committed_at timestamptz NOT NULL DEFAULT now(), packed bytea NOT NULL,
    CHECK (octet_length(packed) = 16 * ids)
);
ALTER TABLE {s}.seen_ids ALTER COLUMN packed SET STORAGE EXTERNAL;
CREATE TABLE {s}.quarantine (
    rules text NOT NULL, partition int NOT NULL, at_offset bigint NOT NULL,
    reason text NOT NULL, masked text NOT NULL, log_time timestamptz NOT NULL,
    PRIMARY KEY (rules, partition, at_offset)
);
CREATE TABLE {s}.source_position (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    position jsonb NOT NULL, stored_at timestamptz NOT NULL
);

CREATE TABLE {s}.runs (
    run uuid PRIMARY KEY, base bigint NOT NULL, pointer_version bigint NOT NULL,
    began_at timestamptz NOT NULL DEFAULT now(), ended_at timestamptz
);
CREATE TABLE {s}.segments (
    segment bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run uuid NOT NULL, fingerprint text NOT NULL, day date NOT NULL, loaded boolean NOT NULL DEFAULT false,
    rows bigint NOT NULL DEFAULT 0, events bigint NOT NULL DEFAULT 0, id_checksum bigint NOT NULL DEFAULT 0,
    digest text NOT NULL DEFAULT '',
    UNIQUE (run, fingerprint, day)
);
CREATE TABLE {s}.manifests (
    manifest bigint PRIMARY KEY, run uuid UNIQUE, base bigint, generation int NOT NULL REFERENCES {s}.generations,
    cut jsonb NOT NULL, watermark timestamptz, fingerprints jsonb NOT NULL, named text[] NOT NULL,
    winner_runs uuid[] NOT NULL, counts jsonb NOT NULL, checks jsonb NOT NULL,
    published_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE {s}.manifest_segments (
    manifest bigint NOT NULL REFERENCES {s}.manifests ON DELETE CASCADE,
    fingerprint text NOT NULL, day date NOT NULL, segment bigint NOT NULL REFERENCES {s}.segments,
    PRIMARY KEY (manifest, fingerprint, day)
);
CREATE INDEX manifests_of_segment ON {s}.manifest_segments (segment);
CREATE TABLE {s}.pointer (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    manifest bigint NOT NULL REFERENCES {s}.manifests, version bigint NOT NULL, last_manifest bigint NOT NULL
);
"""

HOLD_FRONTIER: LiteralString = """
CREATE FUNCTION {s}.hold_frontier(mine uuid, expected jsonb) RETURNS int LANGUAGE plpgsql AS $body$
DECLARE held record;
BEGIN
    SELECT token, until, generation INTO STRICT held FROM {s}.frontier FOR UPDATE;
    IF held.token <> mine THEN
        RAISE EXCEPTION 'fenced' USING ERRCODE = 'SEA01';
    END IF;
    IF expected IS NOT NULL AND held.until <> expected THEN
        RAISE EXCEPTION 'stale frontier' USING ERRCODE = 'SEA02', DETAIL = held.until::text;
    END IF;
    PERFORM FROM {s}.generations g WHERE g.generation = held.generation AND g.cut IS NULL AND g.until = held.until;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'The open generation does not end at the frontier.' USING ERRCODE = 'SEA03', DETAIL = held.until::text;
    END IF;
    RETURN held.generation;
END $body$;
COMMENT ON FUNCTION {s}.hold_frontier 
    IS 'Locks the frontier and only then reads it; refuses a writer that is fenced or has read another frontier.';
"""

SEAM_STATE: LiteralString = """
CREATE FUNCTION {s}.seam_state(asked_view text, asked_manifest bigint)
RETURNS TABLE (manifest bigint, generation int, cut jsonb, watermark timestamptz, frontier jsonb, stale_seconds float8, problem text)
LANGUAGE sql STABLE AS $body$
    SELECT m.manifest, m.generation, m.cut, m.watermark,
        CASE WHEN asked_manifest IS NULL THEN f.until ELSE m.cut END,
        extract(epoch FROM statement_timestamp() - f.alive_at)::float8,
        CASE
            WHEN m.generation > 0 AND asked_view <> ALL (m.named) THEN 'unnamed'
            WHEN asked_manifest IS NOT NULL THEN NULL
            WHEN NOT g.tiled OR g.many <> f.generation - m.generation THEN 'gap'
            WHEN NOT g.folded THEN 'unfolded'
        END
    FROM {s}.frontier f
    JOIN {s}.manifests m ON m.manifest = coalesce(asked_manifest, (SELECT p.manifest FROM {s}.pointer p))
    CROSS JOIN LATERAL (
        SELECT count(*) AS many,
            coalesce(bool_and(o.start = o.expected AND NOT o.rows_expired
                AND o.until = CASE WHEN o.generation = f.generation THEN f.until ELSE o.cut END
                AND (o.cut IS NULL) = (o.generation = f.generation)), false) AS tiled,
            coalesce(bool_and(o.folded IS NULL OR asked_view = ANY (o.folded)), true) AS folded
        FROM (
            SELECT a.*, lag(a.cut, 1, m.cut) OVER (ORDER BY a.generation) AS expected
            FROM {s}.generations a WHERE a.generation > m.generation
        ) o
    ) g
$body$;
COMMENT ON FUNCTION {s}.seam_state 
    IS 'The pointer, the seam and the frontier, and why a view cannot be answered: unnamed, unfolded or gap; null if it can.';

CREATE FUNCTION {s}.seam_checked(view_name text, asked_view text)
RETURNS TABLE (manifest bigint, generation int, cut jsonb, watermark timestamptz, frontier jsonb)
LANGUAGE plpgsql STABLE AS $body$
DECLARE state record;
BEGIN
    SELECT * INTO STRICT state FROM {s}.seam_state(asked_view, NULL);
    IF state.problem = 'gap' THEN
        RAISE EXCEPTION 'SeamGap: the generations after manifest % do not tile [%, %).', state.manifest, state.cut, state.frontier
            USING ERRCODE = 'SEA03', HINT = 'seam status';
    ELSIF state.problem IS NOT NULL THEN
        RAISE EXCEPTION 'ViewNotReady: % has no complete result at manifest %.', view_name, state.manifest
            USING ERRCODE = 'SEA04', HINT = 'seam nightly';
    END IF;
    RETURN QUERY SELECT state.manifest, state.generation, state.cut, state.watermark, state.frontier;
END $body$;
COMMENT ON FUNCTION {s}.seam_checked IS 'The state for one SQL view; an error where the answer would be a smaller number.';
"""

FIRST_ROWS: LiteralString = """
INSERT INTO {s}.line (topic, topic_id, origin, state_format) VALUES (%(topic)s, %(topic_id)s, %(origin)s, %(state_format)s);
INSERT INTO {s}.generations (generation, start, until, cut) VALUES (0, %(origin)s, %(origin)s, %(origin)s);
INSERT INTO {s}.generations (generation, start, until) VALUES (1, %(origin)s, %(origin)s);
INSERT INTO {s}.frontier (token, until, generation) VALUES (gen_random_uuid(), %(origin)s, 1);
INSERT INTO {s}.manifests (manifest, generation, cut, fingerprints, named, winner_runs, counts, checks)
    VALUES (0, 0, %(origin)s, '{{}}', '{{}}', '{{}}', '{{}}', '{{}}');
INSERT INTO {s}.pointer (manifest, version, last_manifest) VALUES (0, 0, 0)
"""
