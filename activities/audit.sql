-- The audit trail. The first event stored under a key stays; nothing is ever changed or removed through this table.
CREATE SCHEMA IF NOT EXISTS relight;

CREATE TABLE IF NOT EXISTS relight.audit_event (
    key          text PRIMARY KEY,
    at           timestamptz NOT NULL,
    recorded_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    workflow_id  text NOT NULL,
    cluster      text NOT NULL,
    job_id       text NOT NULL,
    submitted_at timestamptz NOT NULL,
    attempt      integer NOT NULL,
    kind         text NOT NULL,
    who          text NOT NULL,
    mode         text NOT NULL,
    summary      text NOT NULL,
    event        jsonb NOT NULL
);

CREATE INDEX IF NOT EXISTS audit_event_of_job ON relight.audit_event (cluster, job_id, at, key);
CREATE INDEX IF NOT EXISTS audit_event_by_time ON relight.audit_event (at, key);

CREATE OR REPLACE FUNCTION relight.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'relight.audit_event is append-only: % refused', TG_OP
        USING ERRCODE = 'insufficient_privilege';
END
$$;

CREATE OR REPLACE TRIGGER append_only
    BEFORE UPDATE OR DELETE OR TRUNCATE ON relight.audit_event
    FOR EACH STATEMENT EXECUTE FUNCTION relight.refuse_change();
