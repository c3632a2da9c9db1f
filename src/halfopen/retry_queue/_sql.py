"""The statements both engines run. Parameters are written `:name`; each engine turns them into its own spelling."""

from __future__ import annotations

from ._errors import StoreUnavailableError
from ._rows import COLUMNS

__all__ = [
    "APPLY",
    "APPLY_WITH_TOKEN",
    "CANDIDATES",
    "COLUMN_LIST",
    "HISTORY",
    "NEW_LANE",
    "VERSION",
    "WHICH_VERSION",
    "check_version",
    "schema",
]

VERSION = 1
"""Of the tables; a store of another version is not opened."""

COLUMN_LIST = ", ".join(COLUMNS)
_M_COLUMNS = ", ".join(f"m.{column}" for column in COLUMNS)
READY_STATES = "state IN ('waiting', 'unknown_delivery')"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL){strict};

CREATE TABLE IF NOT EXISTS lanes (
    lane        TEXT PRIMARY KEY,
    hold        TEXT,
    hold_until  {real},
    hold_note   TEXT,
    breaker     TEXT,
    send_window INTEGER NOT NULL DEFAULT 1
){strict};

CREATE TABLE IF NOT EXISTS messages (
    seq             {identity},
    id              TEXT NOT NULL UNIQUE,
    lane            TEXT NOT NULL REFERENCES lanes,
    stream          TEXT,
    stream_mode     INTEGER NOT NULL DEFAULT 0,
    kind            TEXT NOT NULL DEFAULT '',
    size            {integer} NOT NULL,
    digest          TEXT NOT NULL,
    created         {real} NOT NULL,
    deadline        {real},
    due             {real} NOT NULL,
    attempts        INTEGER NOT NULL DEFAULT 0,
    tries           INTEGER NOT NULL DEFAULT 0,
    trial_failures  INTEGER NOT NULL DEFAULT 0,
    back_end_errors INTEGER NOT NULL DEFAULT 0,
    resends         INTEGER NOT NULL DEFAULT 0,
    maybe_delivered INTEGER NOT NULL DEFAULT 0,
    state           TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'sending',
                    'unknown_delivery', 'awaiting_receipt', 'done', 'error', 'dead', 'cancelled')),
    lease_until     {real},
    lease_token     TEXT,
    epoch           {integer},
    last_outcome    TEXT,
    last_detail     TEXT,
    resubmit_of     TEXT,
    finished        {real}
){strict};

CREATE TABLE IF NOT EXISTS payloads (
    seq     {integer} PRIMARY KEY REFERENCES messages,
    headers TEXT NOT NULL,
    body    {blob},
    file    TEXT,
    mic     TEXT,
    receipt {blob},
    early   TEXT
){strict};

CREATE TABLE IF NOT EXISTS history (
    entry   {identity},
    seq     {integer} REFERENCES messages,
    lane    TEXT NOT NULL,
    at      {real} NOT NULL,
    attempt INTEGER NOT NULL,
    what    TEXT NOT NULL,
    outcome TEXT,
    detail  TEXT,
    who     TEXT
){strict};

CREATE INDEX IF NOT EXISTS messages_ready ON messages (lane, seq) WHERE state IN ('waiting', 'unknown_delivery');
CREATE INDEX IF NOT EXISTS messages_due ON messages (lane, due) WHERE state IN ('waiting', 'unknown_delivery');
CREATE INDEX IF NOT EXISTS messages_leased ON messages (lane, lease_until) WHERE state = 'sending';
CREATE INDEX IF NOT EXISTS messages_receipts ON messages (due) WHERE state = 'awaiting_receipt';
CREATE INDEX IF NOT EXISTS messages_deadlines ON messages (deadline)
    WHERE deadline IS NOT NULL AND state IN ('waiting', 'unknown_delivery', 'awaiting_receipt');
CREATE INDEX IF NOT EXISTS messages_attention ON messages (state, lane) WHERE state IN ('error', 'dead');
CREATE INDEX IF NOT EXISTS messages_finished ON messages (finished) WHERE state IN ('done', 'cancelled');
CREATE INDEX IF NOT EXISTS messages_streams ON messages (lane, stream, seq)
    WHERE stream IS NOT NULL AND state NOT IN ('done', 'cancelled');
CREATE INDEX IF NOT EXISTS history_of ON history (seq) WHERE seq IS NOT NULL;
INSERT INTO meta (key, value) VALUES ('schema', '{version}') ON CONFLICT DO NOTHING;

CREATE INDEX IF NOT EXISTS payload_files ON payloads (file) WHERE file IS NOT NULL;
"""

SQLITE_TYPES = {
    "identity": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "integer": "INTEGER",
    "real": "REAL",
    "blob": "BLOB",
    "strict": " STRICT",
}
POSTGRES_TYPES = {
    "identity": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "integer": "BIGINT",
    "real": "DOUBLE PRECISION",
    "blob": "BYTEA",
    "strict": "",
}


def schema(types: dict[str, str]) -> str:
    """Return the statements that create what is missing, in one engine's *types*."""
    return _SCHEMA.format(**types, version=VERSION)


def check_version(rows: list[tuple[str]]) -> None:
    """
    Refuse tables another version made.

    Raises:
        StoreUnavailableError: They are not of this version.
    """
    found = rows[0][0] if rows else "none"
    if found != str(VERSION):
        raise StoreUnavailableError(f"the store's tables are of version {found}, this halfopen needs {VERSION}")


WHICH_VERSION = "SELECT value FROM meta WHERE key = 'schema'"

NEW_LANE = "INSERT INTO lanes (lane) VALUES (:lane) ON CONFLICT DO NOTHING"

# The plus sign keeps the planner on the index by arrival, which needs no sorting.
CANDIDATES = f"""
SELECT {_M_COLUMNS} FROM messages m
WHERE m.lane = :lane AND m.state IN ('waiting', 'unknown_delivery') {{due}}
  AND (m.deadline IS NULL OR m.deadline > :now)
  AND (m.stream IS NULL OR NOT EXISTS (
        SELECT 1 FROM messages e
        WHERE e.lane = m.lane AND e.stream = m.stream AND e.seq < m.seq
          AND e.stream IS NOT NULL AND e.state NOT IN ('done', 'cancelled')
          AND NOT (e.state IN ('error', 'dead') AND (e.stream_mode & 1) = 1)
          AND NOT (e.state = 'awaiting_receipt' AND (e.stream_mode & 2) = 2)))
ORDER BY m.seq LIMIT :seats"""
ONLY_DUE = "AND +m.due <= :now"

MARK = """
UPDATE messages SET state = 'sending', attempts = attempts + 1,
                    lease_token = :token, lease_until = :until, epoch = :epoch"""

APPLY = """
UPDATE messages SET state = :state, due = :due, attempts = attempts + :attempts,
    tries = CASE WHEN :resets = 1 THEN 0 ELSE tries + :tries END,
    trial_failures = trial_failures + :trial_failures, back_end_errors = back_end_errors + :back_end_errors,
    resends = CASE WHEN :resets = 1 THEN 0 ELSE resends + :resends END,
    maybe_delivered = :maybe_delivered, lease_until = NULL, lease_token = NULL,
    last_outcome = COALESCE(:outcome, last_outcome), last_detail = :detail,
    deadline = COALESCE(:deadline, deadline), finished = :finished
WHERE seq = :seq"""
APPLY_WITH_TOKEN = f"{APPLY} AND lease_token = :token AND state = 'sending'"

HISTORY = """
INSERT INTO history (seq, lane, at, attempt, what, outcome, detail, who)
VALUES (:seq, :lane, :at, :attempt, :what, :outcome, :detail, :who)"""
