-- The functions of a volume on PostgreSQL, schema version 6: what a store does to messages, in one call each.
--
-- {device} is the schema of the volume and {memory} that of its non-persistent messages. Both are written out: the path
-- in which an application looks for tables does not matter. What is done in one of them alone is written with {store},
-- and made twice: for the memory the name ends in _memory. FORGET stands for what deletes rows of messages, as m. A
-- function acts with the rights of whoever calls it. Each statement in it sees what others have committed before it
-- began, so that the lock of the volume, which is taken first, holds for all that is looked at. Each expression and
-- each statement of PL/pgSQL takes about 1 and 5 microseconds: what most messages have no use for stands behind one
-- test. One message has statements of its own where several are found by a list.

-- PIECES of functions stand where their names are, in braces; {of} in one is what its name is followed by there.
--
-- One message arrives alone, as most come: its row is complete, and the next statement also stores it and lets it stand
-- in its queue. As a row of a function it is stored as it is, without an expression for each column.
PIECE arrive AS $piece$
arrival.id := coalesce(arrival.id, of_space::bigint << 48 | number);
arrival.order_key := arrival.order_key || int8send(number # -(get_byte(kinds, 0) & 1)::bigint) || '\x80'::bytea;
WITH stored AS (
  INSERT INTO {device}.message SELECT * FROM unnest(ARRAY[arrival])
), stands AS (
  INSERT INTO {device}.ready (queue_id, order_key, message_id, retries)
  SELECT of_queue, arrival.order_key, arrival.id, 0 WHERE (arrival.available_at > at_time) IS NOT TRUE
)
$piece$;

-- It becomes available later, or expires.
PIECE arrive_later AS $piece$
IF arrival.available_at > at_time THEN
  INSERT INTO {device}.due (queue_id, available_at, message_id, order_key, retries)
  VALUES (of_queue, arrival.available_at, arrival.id, arrival.order_key, 0);
END IF;
IF arrival.expires_at IS NOT NULL THEN
  INSERT INTO {device}.expiring (queue_id, expires_at, message_id)
  VALUES (of_queue, arrival.expires_at, arrival.id);
END IF;
$piece$;

-- It stands for each of several consumers, who are counted here; the queue is with the next statement.
PIECE arrive_for_all AS $piece$
arrival.id := coalesce(arrival.id, of_space::bigint << 48 | number);
arrival.order_key := arrival.order_key || int8send(number # -(get_byte(kinds, 0) & 1)::bigint) || '\x80'::bytea;
INSERT INTO {device}.counter AS c (space_id, queue_id, slot, generation, sequence, messages, pages, size, enqueued,
                                   dequeued, expired, discarded, moved)
SELECT of_space, q.id, of_slot, 0, 0, brought, pages, size, brought, 0, 0, 0, 0 FROM unnest(consumers) AS q (id)
ON CONFLICT (space_id, queue_id, slot) DO UPDATE
SET messages = c.messages + brought, pages = c.pages + excluded.pages, size = c.size + excluded.size,
    enqueued = c.enqueued + brought;
WITH stored AS (
  INSERT INTO {device}.message SELECT * FROM unnest(ARRAY[arrival])
), stands AS (
  INSERT INTO {device}.ready (queue_id, order_key, message_id, retries)
  SELECT q.id, arrival.order_key, arrival.id, 0 FROM unnest(consumers) AS q (id)
  WHERE (arrival.available_at > at_time) IS NOT TRUE
), shared AS (
  INSERT INTO {device}.share (message_id, places)
  SELECT arrival.id, cardinality(consumers) WHERE cardinality(consumers) > 1
)
$piece$;

-- One message that comes is counted.
PIECE count_one AS $piece$
UPDATE {device}.counter AS c
SET sequence = CASE WHEN mark IS NULL THEN c.sequence ELSE number END, messages = c.messages + brought,
    pages = c.pages + pages, size = c.size + size, enqueued = c.enqueued + brought,
    highest = CASE c.queue_id WHEN 0 THEN greatest(c.highest, used_messages + brought) ELSE c.highest END
WHERE {own_rows of {device}};
$piece$;

-- The rows of a slot: that of the queue space, and that of the queue. Each is looked for by its whole key. Together they
-- would be looked for among the rows of all queues, where the server believes these few. Nobody else may write them: a
-- row that has moved meanwhile would not be found again by its place, and not be counted.
PIECE own_rows AS $piece$
c.ctid = ANY(ARRAY[
  (SELECT o.ctid FROM {of}.counter AS o WHERE o.space_id = of_space AND o.queue_id = 0 AND o.slot = of_slot),
  (SELECT o.ctid FROM {of}.counter AS o WHERE o.space_id = of_space AND o.queue_id = of_queue AND o.slot = of_slot)])
$piece$;

-- What has come and gone is counted, in the rows of one slot.
PIECE count AS $piece$
UPDATE {device}.counter AS c
SET sequence = CASE WHEN mark IS NULL THEN c.sequence ELSE number END,
    messages = c.messages + brought[i] - gone[3 * i - 2], pages = c.pages + pages[i] - gone[3 * i - 1],
    size = c.size + sizes[i] - gone[3 * i], enqueued = c.enqueued + brought[i],
    dequeued = c.dequeued + gone[3 * i - 2],
    highest = CASE WHEN i = 1 AND brought[1] > 0 THEN greatest(c.highest, used_messages + brought[1])
                   ELSE c.highest END
FROM generate_series(1, cardinality(queues)) AS i
WHERE c.ctid = (SELECT o.ctid FROM {device}.counter AS o
                WHERE o.space_id = of_space AND o.queue_id = queues[i] AND o.slot = of_slot);
GET DIAGNOSTICS written = ROW_COUNT;
$piece$;

-- Messages arrive in a queue, or are refused, and then nothing was changed.
--
-- volume_lock    the key of the volume's lock.
-- of_space       the queue space; known: its generation; most_messages, most_pages, most_memory: what it may hold. The
--                last is 0 where it has no non-persistent messages. has_memory: the caller has a part in them.
-- of_slot        whose rows of the counters are written. mark: where given, the row of the queue space tells by it who
--                writes it, and then also the last sequence number; this is for one message that goes to the disk.
-- brought        how many messages come, with pages and size; memory_brought and so on: of those that go to memory.
--                All are 0 where a former call in the transaction has counted these messages, and found room for them.
-- kinds          a byte for each: 1 where the sequence number in the key is inverted, plus 2 where it goes to memory.
-- arrival        the row, as it will stand, of one message that comes alone and asks for nothing special. Its order key
--                lacks the sequence number and the end, and its identifier is null unless it was given before.
-- arrivals       the rows of all others, while arrival is null. body_id is 0 where the caller keeps the body apart, as
--                soon as it has the identifier.
-- group_id       of messages that stay together: 0, or the identifier of the first where that has come before.
-- candidates     the numbers that a message may have which others are to stand before, the best first; candidate_of: of
--                which of such messages it is, from 1; stands_before: for each arrival, which of them it stands before.
-- level_...      high limits with a command that these messages may reach, as in qmcore.transitions.Level; level_lock:
--                the key of a claim; of_owner: who claims.
-- consumers      of a queue for several, for whom each message stands; all messages go to the disk then.
--
-- It gives a list of numbers. Where it refuses, these are the reason, how much is used, the limit, and what is wanted,
-- as qmcore.transitions.Refused has them. Else the first is -1, or -2 where somebody waits for the queue. Behind it is,
-- where there is a mark, the sequence number; else the number of the transaction, how many of the limits
-- are reached and claimed, the sequence numbers, which of the limits those are (from 1), and at which use each.
CREATE FUNCTION {device}.qm_enqueue(
  volume_lock bigint, of_space integer, known bigint, most_messages bigint, most_pages bigint, most_memory bigint,
  of_queue integer, of_slot integer, mark bigint,
  at_time bigint, brought bigint, pages bigint, size bigint, kinds bytea,
  arrival {device}.message DEFAULT NULL, arrivals {device}.message[] DEFAULT NULL,
  has_memory boolean DEFAULT false, memory_brought bigint DEFAULT 0, memory_pages bigint DEFAULT 0,
  memory_size bigint DEFAULT 0, group_id bigint DEFAULT NULL,
  candidates bigint[] DEFAULT NULL, candidate_of integer[] DEFAULT NULL, stands_before integer[] DEFAULT NULL,
  of_owner bigint DEFAULT NULL, level_memory boolean[] DEFAULT NULL, level_unit text[] DEFAULT NULL,
  level_at bigint[] DEFAULT NULL, level_capacity bigint[] DEFAULT NULL, level_lock bigint[] DEFAULT NULL,
  consumers integer[] DEFAULT NULL
) RETURNS bigint[] LANGUAGE plpgsql AS $function$
#variable_conflict use_variable
DECLARE
  number bigint;
  numbers bigint[];
  done bigint;
  generation bigint;
  used_messages bigint;
  used_pages bigint;
  memory_messages bigint;
  memory_used bigint;
  written bigint;
  place_keys bytea[];
  place_key bytea;
  first_candidate bigint;
  on_disk {device}.message[];
  in_memory {device}.message[];
  measured bigint;
  reached bigint[];
  reached_at bigint[];
  base bigint;
  numbers_of regclass;
  is_usual boolean;
  kind integer;
BEGIN
  IF pg_advisory_xact_lock_shared(volume_lock) IS NULL THEN
    RETURN NULL;
  END IF;
  SELECT CASE WHEN max(c.generation) FILTER (WHERE c.slot = 0) = known AND most_memory = 0
                AND sum(c.messages)::bigint + brought <= most_messages AND sum(c.pages)::bigint + pages <= most_pages
              THEN nextval(('{device}.sequence_' || of_space)::regclass) END,
         sum(c.messages)::bigint,
         CASE WHEN EXISTS (SELECT FROM {device}.waiter AS w WHERE w.queue_id = of_queue) THEN -2 ELSE -1 END
  INTO number, used_messages, done
  FROM {device}.counter AS c WHERE c.space_id = of_space AND c.queue_id = 0;

  IF number IS NULL OR arrivals IS NOT NULL THEN
    IF number IS NULL THEN
      SELECT max(c.generation) FILTER (WHERE c.slot = 0), sum(c.messages)::bigint, sum(c.pages)::bigint
      INTO generation, used_messages, used_pages
      FROM {device}.counter AS c WHERE c.space_id = of_space AND c.queue_id = 0;
      IF generation IS DISTINCT FROM known THEN
        RETURN ARRAY[0, 0, 0, 0];
      END IF;
    END IF;
    IF candidates IS NOT NULL THEN
      FOR i IN 1 .. cardinality(candidates) LOOP
        IF candidate_of[i] IS DISTINCT FROM candidate_of[i - 1] THEN
          first_candidate := candidates[i];
        END IF;
        CONTINUE WHEN place_keys[candidate_of[i]] IS NOT NULL;
        -- The key of one that a commit is to enqueue is empty: it has no place yet.
        SELECT nullif(m.order_key, '') INTO place_key FROM {device}.message AS m
        WHERE m.id = candidates[i] AND m.queue_id = of_queue
          AND NOT EXISTS (SELECT FROM {device}.history AS h WHERE h.message_id = m.id)
          AND (consumers IS NULL OR NOT EXISTS (
            SELECT FROM {device}.share AS s WHERE s.message_id = m.id
            AND s.places <= (SELECT count(*) FROM {device}.spent AS p WHERE p.message_id = m.id)));
        IF place_key IS NULL AND has_memory THEN
          SELECT nullif(m.order_key, '') INTO place_key FROM {memory}.message AS m
          WHERE m.id = candidates[i] AND m.queue_id = of_queue;
        END IF;
        place_keys[candidate_of[i]] := place_key;
        IF place_key IS NULL AND candidate_of[i] IS DISTINCT FROM candidate_of[i + 1] THEN
          RETURN ARRAY[5, of_queue, 0, first_candidate];
        END IF;
      END LOOP;
    END IF;
    IF number IS NULL THEN
      -- There is too little room, or that of the memory is to be seen too.
      SELECT coalesce(sum(c.messages), 0)::bigint, coalesce(sum(c.pages), 0)::bigint INTO memory_messages, memory_used
      FROM {memory}.counter AS c WHERE c.space_id = of_space AND c.queue_id = 0 AND most_memory > 0;
      IF brought + memory_brought > 0
         AND used_messages + memory_messages + brought + memory_brought > most_messages THEN
        RETURN ARRAY[1, used_messages + memory_messages, most_messages, brought + memory_brought];
      ELSIF memory_brought > 0 AND NOT has_memory THEN
        RETURN ARRAY[4, 0, 0, 0];
      ELSIF brought > 0 AND used_pages + pages > most_pages THEN
        RETURN ARRAY[2, used_pages, most_pages, pages];
      ELSIF memory_brought > 0 AND memory_used + memory_pages > most_memory THEN
        RETURN ARRAY[3, memory_used, most_memory, memory_pages];
      END IF;
      number := nextval(('{device}.sequence_' || of_space)::regclass);
    END IF;
  END IF;

  IF arrivals IS NULL THEN
    IF consumers IS NULL THEN
      {arrive}
      {count_one}
    ELSE
      IF EXISTS (SELECT FROM {device}.waiter AS w WHERE w.queue_id = ANY(consumers)) THEN
        done := -2;
      END IF;
      {arrive_for_all}
      {count_one}
    END IF;
    GET DIAGNOSTICS written = ROW_COUNT;
    IF written = 2 AND mark IS NOT NULL AND arrival.expires_at IS NULL AND arrival.available_at IS NULL THEN
      RETURN ARRAY[done, number];
    END IF;
    numbers := ARRAY[number];
    IF consumers IS NULL THEN
      {arrive_later}
    ELSE
      INSERT INTO {device}.due (queue_id, available_at, message_id, order_key, retries)
      SELECT p.id, arrival.available_at, arrival.id, arrival.order_key, 0 FROM unnest(consumers) AS p (id)
      WHERE arrival.available_at > at_time;
      INSERT INTO {device}.expiring (queue_id, expires_at, message_id)
      SELECT of_queue, arrival.expires_at, arrival.id WHERE arrival.expires_at IS NOT NULL;
    END IF;
  ELSE
    base := of_space::bigint << 48;
    numbers_of := ('{device}.sequence_' || of_space)::regclass;
    is_usual := stands_before IS NULL AND group_id IS NULL;
    FOR i IN 1 .. cardinality(arrivals) LOOP
      arrival := arrivals[i];
      IF number IS NULL THEN
        number := nextval(numbers_of);
      END IF;
      numbers := numbers || number;
      IF arrival.id IS NULL THEN
        arrival.id := base | number;
      END IF;
      IF NOT is_usual OR arrival.body_id IS NOT NULL THEN
        IF stands_before[i] > 0 THEN
          place_key := place_keys[stands_before[i]];
          arrival.order_key := substr(place_key, 1, length(place_key) - 1) || '\x40'::bytea;
        END IF;
        IF group_id IS NOT NULL THEN
          group_id := coalesce(nullif(group_id, 0), arrival.id);
          arrival.group_id := group_id;
        END IF;
        IF arrival.body_id IS NOT NULL THEN
          arrival.body_id := arrival.id;
        END IF;
      END IF;
      kind := get_byte(kinds, i - 1);
      arrival.order_key := arrival.order_key || int8send(number # -(kind & 1)::bigint) || '\x80'::bytea;
      IF kind < 2 THEN
        on_disk := on_disk || arrival;
      ELSE
        in_memory := in_memory || arrival;
      END IF;
      number := NULL;
    END LOOP;
    IF brought > 0 THEN
      UPDATE {device}.counter AS c
      SET messages = c.messages + brought, pages = c.pages + pages, size = c.size + size,
          enqueued = c.enqueued + brought,
          highest = CASE c.queue_id WHEN 0 THEN greatest(c.highest, used_messages + brought) ELSE c.highest END
      WHERE {own_rows of {device}};
      GET DIAGNOSTICS written = ROW_COUNT;
      IF consumers IS NOT NULL THEN
        INSERT INTO {device}.counter AS c (space_id, queue_id, slot, generation, sequence, messages, pages, size,
                                           enqueued, dequeued, expired, discarded, moved)
        SELECT of_space, q.id, of_slot, 0, 0, brought, pages, size, brought, 0, 0, 0, 0 FROM unnest(consumers) AS q (id)
        ON CONFLICT (space_id, queue_id, slot) DO UPDATE
        SET messages = c.messages + brought, pages = c.pages + excluded.pages, size = c.size + excluded.size,
            enqueued = c.enqueued + brought;
      END IF;
    END IF;
  END IF;
  IF written < 2 THEN
    -- The first of this slot in the queue.
    INSERT INTO {device}.counter (space_id, queue_id, slot, generation, sequence, messages, pages, size, enqueued,
                                  dequeued, expired, discarded, moved, highest)
    SELECT of_space, q.id, of_slot, coalesce(mark, 0), CASE WHEN mark IS NULL THEN 0 ELSE number END,
           brought, pages, size, brought, 0, 0, 0, 0, CASE q.id WHEN 0 THEN used_messages + brought ELSE 0 END
    FROM unnest(ARRAY[0, of_queue]) AS q (id)
    ON CONFLICT DO NOTHING;
  END IF;
  IF mark IS NOT NULL THEN
    RETURN ARRAY[done, number];
  END IF;

  IF on_disk IS NOT NULL THEN
    WITH stored AS (
      INSERT INTO {device}.message SELECT * FROM unnest(on_disk) RETURNING id, order_key, available_at, expires_at
    ), stands AS (
      INSERT INTO {device}.ready (queue_id, order_key, message_id, retries)
      SELECT p.id, s.order_key, s.id, 0
      FROM stored AS s CROSS JOIN unnest(coalesce(consumers, ARRAY[of_queue])) AS p (id)
      WHERE (s.available_at > at_time) IS NOT TRUE
    ), waits AS (
      INSERT INTO {device}.due (queue_id, available_at, message_id, order_key, retries)
      SELECT p.id, s.available_at, s.id, s.order_key, 0
      FROM stored AS s CROSS JOIN unnest(coalesce(consumers, ARRAY[of_queue])) AS p (id) WHERE s.available_at > at_time
    ), shared AS (
      INSERT INTO {device}.share (message_id, places)
      SELECT s.id, cardinality(consumers) FROM stored AS s WHERE cardinality(consumers) > 1
    )
    INSERT INTO {device}.expiring (queue_id, expires_at, message_id)
    SELECT of_queue, s.expires_at, s.id FROM stored AS s WHERE s.expires_at IS NOT NULL;
  END IF;
  IF in_memory IS NOT NULL THEN
    WITH stored AS (
      INSERT INTO {memory}.message SELECT * FROM unnest(in_memory) RETURNING id, order_key, available_at, expires_at
    ), stands AS (
      INSERT INTO {memory}.ready (queue_id, order_key, message_id, retries)
      SELECT of_queue, s.order_key, s.id, 0 FROM stored AS s WHERE (s.available_at > at_time) IS NOT TRUE
    ), waits AS (
      INSERT INTO {memory}.due (queue_id, available_at, message_id, order_key, retries)
      SELECT of_queue, s.available_at, s.id, s.order_key, 0 FROM stored AS s WHERE s.available_at > at_time
    )
    INSERT INTO {memory}.expiring (queue_id, expires_at, message_id)
    SELECT of_queue, s.expires_at, s.id FROM stored AS s WHERE s.expires_at IS NOT NULL;
  END IF;
  IF memory_brought > 0 THEN
    UPDATE {memory}.counter AS c
    SET messages = c.messages + memory_brought, pages = c.pages + memory_pages, size = c.size + memory_size,
        enqueued = c.enqueued + memory_brought,
        highest = CASE c.queue_id WHEN 0 THEN greatest(c.highest, memory_messages + memory_brought) ELSE c.highest END
    WHERE {own_rows of {memory}};
    GET DIAGNOSTICS written = ROW_COUNT;
    IF written < 2 THEN
      INSERT INTO {memory}.counter (space_id, queue_id, slot, generation, sequence, messages, pages, size, enqueued,
                                    dequeued, expired, discarded, moved, highest)
      SELECT of_space, q.id, of_slot, 0, 0, memory_brought, memory_pages, memory_size, memory_brought, 0, 0, 0, 0,
             CASE q.id WHEN 0 THEN memory_messages + memory_brought ELSE 0 END
      FROM unnest(ARRAY[0, of_queue]) AS q (id)
      ON CONFLICT DO NOTHING;
    END IF;
  END IF;

  FOR i IN 1 .. coalesce(cardinality(level_at), 0) LOOP
    CONTINUE WHEN EXISTS (
      SELECT FROM {device}.threshold AS t WHERE t.queue_id = of_queue AND t.memory = level_memory[i]);
    -- What has expired by now does not count. There may be much of it, so that it is looked at last.
    FOR less_expired IN 0 .. 1 LOOP
      SELECT CASE level_unit[i] WHEN 'b' THEN sum(u.size) WHEN 'B' THEN sum(u.pages) WHEN 'm' THEN sum(u.messages)
                                ELSE div(sum(u.pages) * 100, nullif(level_capacity[i], 0)) END INTO measured
      FROM (
        SELECT c.messages, c.pages, c.size FROM {device}.counter AS c
        WHERE NOT level_memory[i] AND c.space_id = of_space AND c.queue_id = of_queue
        UNION ALL
        SELECT c.messages, c.pages, c.size FROM {memory}.counter AS c
        WHERE has_memory AND (level_memory[i] OR level_unit[i] = 'm')
          AND c.space_id = of_space AND c.queue_id = of_queue
        UNION ALL
        SELECT -1, -m.pages, -m.size FROM {device}.expiring AS e JOIN {device}.message AS m ON m.id = e.message_id
        WHERE less_expired = 1 AND NOT level_memory[i] AND e.queue_id = of_queue AND e.expires_at <= at_time
        UNION ALL
        SELECT -1, -m.pages, -m.size FROM {memory}.expiring AS e JOIN {memory}.message AS m ON m.id = e.message_id
        WHERE less_expired = 1 AND has_memory AND (level_memory[i] OR level_unit[i] = 'm')
          AND e.queue_id = of_queue AND e.expires_at <= at_time
      ) AS u;
      EXIT WHEN coalesce(measured, 0) < level_at[i];
    END LOOP;
    CONTINUE WHEN coalesce(measured, 0) < level_at[i];
    -- What somebody else is about to claim is passed over: an application may take long to commit.
    CONTINUE WHEN NOT pg_try_advisory_xact_lock(level_lock[i]);
    INSERT INTO {device}.threshold (queue_id, memory, value, claimed_by, claimed_at)
    VALUES (of_queue, level_memory[i], measured, of_owner, at_time)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
      reached := reached || i::bigint;
      reached_at := reached_at || measured;
    END IF;
  END LOOP;
  RETURN ARRAY[done, txid_current(), coalesce(cardinality(reached), 0)]
         || numbers || reached || reached_at;
END
$function$;


-- Messages are taken out of `ready`: they are deleted, or kept for the record, or a transaction holds them. Or nothing
-- is done.
--
-- volume_lock    the key of the volume's lock.
-- of_space       the queue space; known: its generation. of_slot: whose rows of the counters are written.
-- most           how many, of the first ones of the queue; or all of `places`, the order keys of messages: those that
--                another session has locked are waited for.
-- is_tidy        whether the caller has just seen to what is due or has expired; else nothing is done where something
--                is, or where something was consumed before `outlived`.
-- kept_for       who consumes, where the queue keeps what is consumed.
-- of_transaction the transaction that is to hold them, in this role. It begins with that, unless most_transactions is
--                null: the queue space may have so many, and had at most highest_transactions at one time, as far as is
--                known. It gets so many sequence numbers as are `wanted`.
-- is_relaxed     whether the commit need not wait for the disk.
-- of_parent      the queue for several whose consumer takes them as of_queue: a message goes with its last place.
--
-- It gives a row for each message, in any order, as it is stored. Beside one of them, or alone, stands the answer, a
-- list of numbers. Where nothing was done these are the reason, how much is used, the limit, and what is wanted, as
-- qmcore.transitions.Refused has them; or -1, whether something is due or has expired, when the next message becomes
-- available, and whether a transaction holds one. Else they are -2, the number of the database transaction, how many
-- transactions there are where that is more than ever, the messages, pages and bytes that the queue space held before
-- for a transaction, how many messages there are, the number of each, in their order, how often each was tried, and the
-- sequence numbers.
CREATE FUNCTION {device}.qm_claim(
  volume_lock bigint, of_space integer, known bigint, of_queue integer, of_slot integer, at_time bigint, most bigint,
  is_tidy boolean, of_transaction bigint DEFAULT NULL, of_owner bigint DEFAULT NULL, started bigint DEFAULT NULL,
  ends bigint DEFAULT NULL, most_transactions bigint DEFAULT NULL, highest_transactions bigint DEFAULT 0,
  wanted bigint DEFAULT 0, is_relaxed boolean DEFAULT false,
  of_role smallint DEFAULT 0, outlived bigint DEFAULT NULL, kept_for text DEFAULT NULL, places bytea[] DEFAULT NULL,
  of_parent integer DEFAULT NULL
) RETURNS TABLE (its {device}.message, answer bigint[]) LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
  home integer := coalesce(of_parent, of_queue);
  place tid;
  number bigint;
  key bytea;
  tries integer;
  row_places tid[];
  numbers bigint[];
  keys bytea[];
  all_tries bigint[];
  moments bigint[];
  expiring_numbers bigint[];
  next_due bigint;
  is_held boolean;
  is_ready boolean;
  open_transactions bigint := 0;
  level_messages bigint := 0;
  level_pages bigint := 0;
  level_size bigint := 0;
  given bigint[];
  gone bigint := 0;
  gone_pages bigint := 0;
  gone_size bigint := 0;
  written bigint;
BEGIN
  IF pg_advisory_xact_lock_shared(volume_lock) IS NULL THEN
    RETURN;
  END IF;
  IF is_relaxed AND set_config('synchronous_commit', 'off', true) IS NULL THEN
    RETURN;
  END IF;

  -- What comes after a look, or what another was about to take then, is looked for once more.
  FOR look IN 1 .. 3 LOOP
    IF places IS NULL AND most = 1 THEN
      SELECT r.ctid, r.message_id, r.order_key, r.retries INTO place, number, key, tries
      FROM {store}.ready AS r
      WHERE r.queue_id = of_queue AND (is_tidy OR NOT (
          EXISTS (SELECT FROM {store}.due AS d WHERE d.queue_id = of_queue AND d.available_at <= at_time)
          OR EXISTS (SELECT FROM {store}.expiring AS e WHERE e.queue_id = home AND e.expires_at <= at_time)
          OR outlived IS NOT NULL AND EXISTS (
            SELECT FROM {device}.history AS h WHERE h.queue_id = of_queue AND h.consumed_at < outlived)))
        AND EXISTS (
          SELECT FROM {device}.counter AS c
          WHERE c.space_id = of_space AND c.queue_id = 0 AND c.slot = 0 AND c.generation = known)
      ORDER BY r.order_key LIMIT 1 FOR UPDATE SKIP LOCKED;
      EXIT WHEN FOUND;
    ELSIF places IS NULL THEN
      SELECT array_agg(f.ctid), array_agg(f.message_id), array_agg(f.order_key), array_agg(f.retries::bigint)
      INTO row_places, numbers, keys, all_tries
      FROM (
        SELECT r.ctid, r.message_id, r.order_key, r.retries
        FROM {store}.ready AS r
        WHERE r.queue_id = of_queue AND (is_tidy OR NOT (
            EXISTS (SELECT FROM {store}.due AS d WHERE d.queue_id = of_queue AND d.available_at <= at_time)
            OR EXISTS (SELECT FROM {store}.expiring AS e WHERE e.queue_id = home AND e.expires_at <= at_time)
            OR outlived IS NOT NULL AND EXISTS (
            SELECT FROM {device}.history AS h WHERE h.queue_id = of_queue AND h.consumed_at < outlived)))
          AND EXISTS (
            SELECT FROM {device}.counter AS c
            WHERE c.space_id = of_space AND c.queue_id = 0 AND c.slot = 0 AND c.generation = known)
        ORDER BY r.order_key LIMIT most FOR UPDATE SKIP LOCKED
      ) AS f;
      EXIT WHEN numbers IS NOT NULL;
    ELSE
      SELECT array_agg(f.ctid), array_agg(f.message_id), array_agg(f.order_key), array_agg(f.retries::bigint)
      INTO row_places, numbers, keys, all_tries
      FROM unnest(places) AS p (key) CROSS JOIN LATERAL (
        SELECT r.ctid, r.message_id, r.order_key, r.retries FROM {store}.ready AS r
        WHERE r.queue_id = of_queue AND r.order_key = p.key FOR UPDATE
      ) AS f;
      EXIT WHEN numbers IS NOT NULL;
    END IF;
    IF NOT EXISTS (
      SELECT FROM {device}.counter AS c
      WHERE c.space_id = of_space AND c.queue_id = 0 AND c.slot = 0 AND c.generation = known
    ) THEN
      answer := ARRAY[0, 0, 0, 0];
      RETURN NEXT;
      RETURN;
    END IF;
    IF NOT is_tidy AND (
      EXISTS (SELECT FROM {store}.due AS d WHERE d.queue_id = of_queue AND d.available_at <= at_time)
      OR EXISTS (SELECT FROM {store}.expiring AS e WHERE e.queue_id = home AND e.expires_at <= at_time)
      OR outlived IS NOT NULL AND EXISTS (
        SELECT FROM {device}.history AS h WHERE h.queue_id = of_queue AND h.consumed_at < outlived)
    ) THEN
      answer := ARRAY[-1, 1, NULL, 0];
      RETURN NEXT;
      RETURN;
    END IF;
    SELECT (SELECT min(d.available_at) FROM {store}.due AS d WHERE d.queue_id = of_queue),
           EXISTS (SELECT FROM {store}.held AS h WHERE h.queue_id = of_queue),
           EXISTS (SELECT FROM {store}.ready AS r WHERE r.queue_id = of_queue)
    INTO next_due, is_held, is_ready;
    IF look = 3 OR NOT is_ready THEN
      answer := ARRAY[-1, 0, next_due, is_held::integer];
      RETURN NEXT;
      RETURN;
    END IF;
  END LOOP;

  IF of_transaction IS NOT NULL THEN
    IF most_transactions IS NULL THEN
      PERFORM FROM {device}.trans AS t
      WHERE t.id = of_transaction AND t.owner_id = of_owner AND t.state = 'active' FOR SHARE;
      IF NOT FOUND THEN
        answer := ARRAY[7, 0, 0, 0];
        RETURN NEXT;
        RETURN;
      END IF;
    END IF;
    SELECT coalesce(sum(c.messages), 0)::bigint, coalesce(sum(c.pages), 0)::bigint, coalesce(sum(c.size), 0)::bigint,
           CASE WHEN most_transactions IS NULL THEN 0
                WHEN EXISTS (SELECT FROM {device}.owner AS o WHERE o.id = of_owner)
                THEN (SELECT count(*) FROM {device}.trans AS t WHERE t.space_id = of_space AND t.state <> 'committed')
           END
    INTO level_messages, level_pages, level_size, open_transactions
    FROM {device}.counter AS c WHERE c.space_id = of_space AND c.queue_id = 0;
    IF most_transactions IS NOT NULL THEN
      IF open_transactions IS NULL THEN
        answer := ARRAY[7, 0, 0, 0];
        RETURN NEXT;
        RETURN;
      ELSIF open_transactions >= most_transactions THEN
        answer := ARRAY[8, open_transactions, most_transactions, 1];
        RETURN NEXT;
        RETURN;
      END IF;
      INSERT INTO {device}.trans (id, space_id, owner_id, state, started_at, deadline)
      VALUES (of_transaction, of_space, of_owner, 'active', started, ends);
      IF open_transactions < highest_transactions THEN
        open_transactions := 0;
      ELSE
        open_transactions := open_transactions + 1;
        INSERT INTO {device}.highest AS h (space_id, resource, value)
        SELECT of_space, 'transactions', open_transactions
        WHERE NOT EXISTS (SELECT FROM {device}.highest AS o WHERE o.space_id = of_space
                          AND o.resource = 'transactions' AND o.value >= open_transactions)
        ON CONFLICT (space_id, resource) DO UPDATE SET value = excluded.value WHERE h.value < excluded.value;
      END IF;
    END IF;
    IF wanted = 1 THEN
      given := ARRAY[nextval(('{device}.sequence_' || of_space)::regclass)];
    ELSIF wanted > 1 THEN
      given := ARRAY(SELECT nextval(('{device}.sequence_' || of_space)::regclass) FROM generate_series(1, wanted));
    END IF;
  END IF;

  IF numbers IS NULL THEN
    IF of_transaction IS NOT NULL OR kept_for IS NOT NULL OR of_parent IS NOT NULL THEN
      WITH taken AS (DELETE FROM {store}.ready AS r WHERE r.ctid = place)
      SELECT m.* INTO its FROM {store}.message AS m WHERE m.id = number;
    ELSE
      WITH taken AS (DELETE FROM {store}.ready AS r WHERE r.ctid = place)
      FORGET FROM {store} WHERE m.id = number RETURNING m.* INTO its;
    END IF;
    answer := ARRAY[-2, txid_current(), open_transactions, level_messages, level_pages, level_size,
                    1, number, tries] || given;
    RETURN NEXT;
    IF its.id IS NULL THEN
      RETURN;
    END IF;
    IF its.expires_at IS NOT NULL AND of_parent IS NULL THEN
      DELETE FROM {store}.expiring AS e
      WHERE e.queue_id = of_queue AND e.expires_at = its.expires_at AND e.message_id = number;
    END IF;
    IF of_transaction IS NOT NULL THEN
      INSERT INTO {store}.held (trans_id, message_id, queue_id, order_key, retries, pages, size, expires_at, role)
      VALUES (of_transaction, number, of_queue, key, tries, its.pages, its.size, its.expires_at, of_role);
    ELSIF of_parent IS NOT NULL THEN
      -- Most often others have places of it, and one row is all that there is to do.
      INSERT INTO {device}.spent (message_id, consumer_id, how, at)
      SELECT number, of_queue, 0, at_time FROM {device}.share AS s
      WHERE s.message_id = number
        AND s.places - (SELECT count(*) FROM {device}.spent AS p WHERE p.message_id = number) > 1;
      IF FOUND THEN
        INSERT INTO {device}.counter AS c (space_id, queue_id, slot, generation, sequence, messages, pages, size,
                                           enqueued, dequeued, expired, discarded, moved)
        VALUES (of_space, of_queue, of_slot, 0, 0, -1, -its.pages, -its.size, 0, 1, 0, 0, 0)
        ON CONFLICT (space_id, queue_id, slot) DO UPDATE
        SET messages = c.messages - 1, pages = c.pages + excluded.pages, size = c.size + excluded.size,
            dequeued = c.dequeued + 1;
      ELSE
        PERFORM {device}.qm_part(of_space, of_slot, of_queue, of_parent, ARRAY[number], at_time, true);
      END IF;
    ELSE
      gone := 1;
      gone_size := its.size;
      IF kept_for IS NULL THEN
        gone_pages := its.pages;
      ELSE
        INSERT INTO {device}.history (queue_id, consumed_at, message_id, consumer)
        VALUES (of_queue, at_time, number, kept_for);
      END IF;
    END IF;
  ELSE
    answer := ARRAY[-2, txid_current(), open_transactions, level_messages, level_pages, level_size]
              || cardinality(numbers)::bigint || numbers || all_tries || given;
    DELETE FROM {store}.ready AS r WHERE r.ctid = ANY(row_places);
    IF of_transaction IS NOT NULL OR kept_for IS NOT NULL OR of_parent IS NOT NULL THEN
      IF of_transaction IS NULL AND of_parent IS NOT NULL THEN
        NULL;
      ELSIF of_transaction IS NULL THEN
        INSERT INTO {device}.history (queue_id, consumed_at, message_id, consumer)
        SELECT of_queue, at_time, t.number, kept_for FROM unnest(numbers) AS t (number);
      ELSE
        INSERT INTO {store}.held (trans_id, message_id, queue_id, order_key, retries, pages, size, expires_at, role)
        SELECT of_transaction, m.id, of_queue, t.key, t.tries, m.pages, m.size, m.expires_at, of_role
        FROM unnest(numbers, keys, all_tries) AS t (number, key, tries)
        CROSS JOIN LATERAL (SELECT * FROM {store}.message AS s WHERE s.id = t.number OFFSET 0) AS m;
      END IF;
      FOR its IN SELECT m.* FROM {store}.message AS m WHERE m.id = ANY(numbers) LOOP
        gone := gone + 1;
        gone_size := gone_size + its.size;
        IF its.expires_at IS NOT NULL AND of_parent IS NULL THEN
          moments := moments || its.expires_at;
          expiring_numbers := expiring_numbers || its.id;
        END IF;
        RETURN NEXT;
        answer := NULL;
      END LOOP;
      IF of_transaction IS NULL AND of_parent IS NOT NULL THEN
        PERFORM {device}.qm_part(of_space, of_slot, of_queue, of_parent, numbers, at_time, true);
      END IF;
    ELSE
      FOR its IN FORGET FROM {store} WHERE m.id = ANY(numbers) RETURNING m.* LOOP
        gone := gone + 1;
        gone_pages := gone_pages + its.pages;
        gone_size := gone_size + its.size;
        IF its.expires_at IS NOT NULL THEN
          moments := moments || its.expires_at;
          expiring_numbers := expiring_numbers || its.id;
        END IF;
        RETURN NEXT;
        answer := NULL;
      END LOOP;
    END IF;
    IF gone = 0 THEN
      -- None of them has a record.
      its := NULL;
      RETURN NEXT;
    END IF;
    IF moments IS NOT NULL THEN
      -- One by one: a join might begin with all that expires.
      DELETE FROM {store}.expiring AS e WHERE e.ctid = ANY(ARRAY(
        SELECT (SELECT o.ctid FROM {store}.expiring AS o
                WHERE o.queue_id = of_queue AND o.expires_at = t.moment AND o.message_id = t.number)
        FROM unnest(moments, expiring_numbers) AS t (moment, number)));
    END IF;
  END IF;
  IF of_transaction IS NULL AND of_parent IS NULL THEN
    UPDATE {store}.counter AS c
    SET messages = c.messages - gone, pages = c.pages - gone_pages, size = c.size - gone_size,
        dequeued = c.dequeued + gone
    WHERE {own_rows of {store}};
    GET DIAGNOSTICS written = ROW_COUNT;
    IF written < 2 THEN
      INSERT INTO {store}.counter (space_id, queue_id, slot, generation, sequence, messages, pages, size, enqueued,
                                   dequeued, expired, discarded, moved)
      SELECT of_space, q.id, of_slot, 0, 0, -gone, -gone_pages, -gone_size, 0, gone, 0, 0, 0
      FROM unnest(ARRAY[0, of_queue]) AS q (id)
      ON CONFLICT DO NOTHING;
    END IF;
  END IF;
END
$function$;


-- A transaction is committed: what it holds on disk goes, and what it brings there arrives. Or nothing is done; where
-- there is no room, or a message is lost, by an error of the state Q0001, which undoes all, and has the numbers of a
-- refusal as its detail.
--
-- volume_lock    the key of the volume's lock.
-- of_space       the queue space; known: its generation; most_messages, most_pages: what it may hold.
-- of_slot        whose rows of the counters are written. mark: where given, the row of the queue space tells by it who
--                writes it, and also the last sequence number.
-- of_transaction the transaction, which is that of an owner; null where it is not recorded, and holds nothing.
-- held           how many messages it has taken, as far as is known.
-- queues         0, which stands for all of them, and then each queue once: first as many `sources` as it has taken
--                messages from, then others that messages come to. Of each: how many are brought, their pages and size.
-- of_queue       the queue that one message comes to which comes alone, as `arrival`; else null.
-- targets        of several `arrivals`, which of the queues they come to, in their order; as them, kinds is what
--                qm_enqueue takes.
-- parents        of the sources, the queue for several whose consumer it is, or 0.
-- keeps          of the sources, whether they keep what is consumed, for the record that `consumer` did it.
--
-- It gives a list of numbers. Where it refuses, these are the reason, how much is used, the limit, and what is wanted.
-- Else they are -1; the sequence number of the mark, or the number of the database transaction; and, of the queue or
-- for each of the targets, whether somebody waits for it.
CREATE FUNCTION {device}.qm_commit(
  volume_lock bigint, of_space integer, known bigint, most_messages bigint, most_pages bigint, of_slot integer,
  mark bigint, at_time bigint, of_transaction bigint, of_owner bigint, held bigint, sources integer, queues integer[],
  brought bigint[], pages bigint[], sizes bigint[],
  kinds bytea DEFAULT NULL, of_queue integer DEFAULT NULL, arrival {device}.message DEFAULT NULL,
  targets integer[] DEFAULT NULL, arrivals {device}.message[] DEFAULT NULL,
  keeps boolean[] DEFAULT NULL, consumer text DEFAULT NULL, parents integer[] DEFAULT NULL
) RETURNS bigint[] LANGUAGE plpgsql AS $function$
#variable_conflict use_variable
DECLARE
  generation bigint;
  used_messages bigint := 0;
  used_pages bigint;
  is_awaited bigint;
  awaited bigint[];
  number bigint;
  numbers bigint[];
  bodies bigint[];
  body bigint;
  its_gone bigint;
  its_pages bigint;
  its_size bigint;
  all_held bigint := 0;
  all_gone bigint := 0;
  all_pages bigint := 0;
  all_size bigint := 0;
  gone bigint[];
  written bigint;
  at integer;
  first integer := 1;
  last integer;
  answer bigint[];
BEGIN
  IF pg_advisory_xact_lock_shared(volume_lock) IS NULL THEN
    RETURN NULL;
  END IF;
  IF brought[1] > 0 THEN
    SELECT max(c.generation) FILTER (WHERE c.slot = 0), sum(c.messages)::bigint, sum(c.pages)::bigint,
           EXISTS (SELECT FROM {device}.waiter AS w WHERE w.queue_id = of_queue)::integer
    INTO generation, used_messages, used_pages, is_awaited
    FROM {device}.counter AS c WHERE c.space_id = of_space AND c.queue_id = 0;
  ELSE
    SELECT c.generation INTO generation
    FROM {device}.counter AS c WHERE c.space_id = of_space AND c.queue_id = 0 AND c.slot = 0;
  END IF;
  IF generation IS DISTINCT FROM known THEN
    RETURN ARRAY[0, 0, 0, 0];
  END IF;
  -- First, so that others who end it wait.
  IF of_transaction IS NULL THEN
    IF NOT EXISTS (SELECT FROM {device}.owner AS o WHERE o.id = of_owner) THEN
      RETURN ARRAY[7, 0, 0, 0];
    END IF;
  ELSE
    DELETE FROM {device}.trans AS t WHERE t.id = of_transaction AND t.owner_id = of_owner AND t.state = 'active';
    IF NOT FOUND THEN
      RETURN ARRAY[7, 0, 0, 0];
    END IF;
  END IF;

  FOR i IN 2 .. sources + 1 LOOP
    WITH its AS (
      DELETE FROM {device}.held AS h
      WHERE h.queue_id = queues[i] AND h.trans_id = of_transaction AND h.role = 0
      RETURNING h.message_id, h.pages, h.size
    )
    SELECT array_agg(t.message_id), count(*), sum(t.pages)::bigint, sum(t.size)::bigint
    INTO numbers, its_gone, its_pages, its_size FROM its AS t;
    IF its_gone = 0 THEN
      gone := gone || ARRAY[0, 0, 0]::bigint[];
      CONTINUE;
    END IF;
    all_held := all_held + its_gone;
    IF parents[i - 1] > 0 THEN
      -- Only what no other consumer has goes. The counters of both are written there, but for the queue space's.
      answer := {device}.qm_part(of_space, of_slot, queues[i], parents[i - 1], numbers, at_time, false);
      all_gone := all_gone + answer[1];
      all_pages := all_pages + answer[2];
      all_size := all_size + answer[3];
      answer := NULL;
      gone := gone || ARRAY[0, 0, 0]::bigint[];
      CONTINUE;
    ELSIF keeps[i - 1] THEN
      INSERT INTO {device}.history (queue_id, consumed_at, message_id, consumer, trans_id)
      SELECT queues[i], at_time, t.number, consumer, of_transaction FROM unnest(numbers) AS t (number);
      -- The room of what is kept is given back when it is forgotten.
      its_pages := 0;
    ELSIF its_gone = 1 THEN
      FORGET FROM {device} WHERE m.id = numbers[1] RETURNING m.body_id INTO body;
      IF body IS NOT NULL THEN
        DELETE FROM {device}.chunk AS c WHERE c.body_id = body;
      END IF;
    ELSE
      WITH its AS (
        FORGET FROM {device} WHERE m.id = ANY(numbers) RETURNING m.body_id
      )
      SELECT array_agg(t.body_id) INTO bodies FROM its AS t WHERE t.body_id IS NOT NULL;
      IF bodies IS NOT NULL THEN
        DELETE FROM {device}.chunk AS c WHERE c.body_id = ANY(bodies);
      END IF;
    END IF;
    all_gone := all_gone + its_gone;
    all_pages := all_pages + its_pages;
    all_size := all_size + its_size;
    -- Of each queue three numbers, as for all of them together.
    gone := gone || ARRAY[its_gone, its_pages, its_size];
  END LOOP;
  IF all_held < held THEN
    RAISE EXCEPTION USING ERRCODE = 'Q0001', MESSAGE = 'a message that the transaction holds is lost',
                          DETAIL = '9 0 0 0';
  END IF;
  IF brought[1] > 0 THEN
    used_messages := used_messages - all_gone;
    used_pages := used_pages - all_pages;
    IF used_messages + brought[1] > most_messages THEN
      answer := ARRAY[1, used_messages, most_messages, brought[1]];
    ELSIF used_pages + pages[1] > most_pages THEN
      answer := ARRAY[2, used_pages, most_pages, pages[1]];
    END IF;
    IF answer IS NOT NULL THEN
      RAISE EXCEPTION USING ERRCODE = 'Q0001', MESSAGE = 'the queue space has no room for what the transaction brings',
                            DETAIL = array_to_string(answer, ' ');
    END IF;
  END IF;

  -- One number for the mark, and for the place of the message that comes alone.
  IF mark IS NOT NULL OR of_queue IS NOT NULL THEN
    number := nextval(('{device}.sequence_' || of_space)::regclass);
  END IF;
  gone := ARRAY[all_gone, all_pages, all_size] || gone
          || array_fill(0::bigint, ARRAY[3 * (cardinality(queues) - sources - 1)]);
  IF of_queue IS NULL THEN
    {count}
  ELSE
    {arrive}
    {count}
    {arrive_later}
    IF all_gone > 100 THEN
      -- That has taken its time, in which somebody may have come to wait.
      SELECT EXISTS (SELECT FROM {device}.waiter AS w WHERE w.queue_id = of_queue)::integer INTO is_awaited;
    END IF;
    awaited := ARRAY[is_awaited];
  END IF;
  IF written < cardinality(queues) THEN
    -- The first of this slot in a queue.
    INSERT INTO {device}.counter (space_id, queue_id, slot, generation, sequence, messages, pages, size, enqueued,
                                  dequeued, expired, discarded, moved, highest)
    SELECT of_space, queues[i], of_slot, coalesce(mark, 0), CASE WHEN mark IS NULL THEN 0 ELSE number END,
           brought[i] - gone[3 * i - 2], pages[i] - gone[3 * i - 1], sizes[i] - gone[3 * i], brought[i],
           gone[3 * i - 2], 0, 0, 0,
           CASE WHEN i = 1 AND brought[1] > 0 THEN used_messages + brought[1] ELSE 0 END
    FROM generate_series(1, cardinality(queues)) AS i
    ON CONFLICT DO NOTHING;
  END IF;

  IF arrivals IS NOT NULL THEN
    FOREACH at IN ARRAY targets LOOP
      last := first + brought[at] - 1;
      -- They are counted, and there is room for them.
      answer := {device}.qm_enqueue(volume_lock, of_space, known, most_messages, most_pages, 0, queues[at], of_slot,
        NULL, at_time, 0, 0, 0, substr(kinds, first, last - first + 1), NULL, arrivals[first : last]);
      IF answer[1] >= 0 THEN
        RAISE EXCEPTION USING ERRCODE = 'Q0001', MESSAGE = 'what the transaction brings was refused',
                              DETAIL = array_to_string(answer[1:4], ' ');
      END IF;
      awaited := awaited || -1 - answer[1];
      first := last + 1;
    END LOOP;
  END IF;
  RETURN ARRAY[-1, CASE WHEN mark IS NULL THEN txid_current() ELSE number END] || awaited;
END
$function$;


-- A consumer of a queue for several has taken messages: its place of each goes, and a message with the last of its
-- places, if that is known here.
--
-- of_space       the queue space; of_slot: whose rows of the counters are written.
-- of_queue       the consumer; of_parent: the queue that it has subscribed to.
-- numbers        the messages, of which each has a record. at_time: now.
-- alone          the call is all that is done: the queue space is counted too, and bodies that are kept apart stay,
--                which the caller reads, and removes.
--
-- It gives how many messages have gone, their pages and their size.
CREATE FUNCTION {device}.qm_part(
  of_space integer, of_slot integer, of_queue integer, of_parent integer, numbers bigint[], at_time bigint,
  alone boolean
) RETURNS bigint[] LANGUAGE plpgsql AS $function$
#variable_conflict use_variable
DECLARE
  last_numbers bigint[];
  moments bigint[];
  expiring_numbers bigint[];
  bodies bigint[];
  its_count bigint;
  its_pages bigint;
  its_size bigint;
  gone bigint := 0;
  gone_pages bigint := 0;
  gone_size bigint := 0;
BEGIN
  SELECT count(*), coalesce(sum(m.pages), 0)::bigint, coalesce(sum(m.size), 0)::bigint
  INTO its_count, its_pages, its_size FROM {device}.message AS m WHERE m.id = ANY(numbers);
  last_numbers := {device}.qm_spend(of_queue, numbers, 0, at_time);
  IF last_numbers <> '{}' THEN
    WITH its AS (
      FORGET FROM {device} WHERE m.id = ANY(last_numbers) RETURNING m.id, m.pages, m.size, m.expires_at, m.body_id
    )
    SELECT count(*), coalesce(sum(t.pages), 0)::bigint, coalesce(sum(t.size), 0)::bigint,
           array_agg(t.expires_at) FILTER (WHERE t.expires_at IS NOT NULL),
           array_agg(t.id) FILTER (WHERE t.expires_at IS NOT NULL),
           array_agg(t.body_id) FILTER (WHERE t.body_id IS NOT NULL)
    INTO gone, gone_pages, gone_size, moments, expiring_numbers, bodies FROM its AS t;
    IF moments IS NOT NULL THEN
      DELETE FROM {device}.expiring AS e WHERE e.ctid = ANY(ARRAY(
        SELECT f.place FROM unnest(moments, expiring_numbers) AS t (moment, number) CROSS JOIN LATERAL (
          SELECT o.ctid AS place FROM {device}.expiring AS o
          WHERE o.queue_id = of_parent AND o.expires_at = t.moment AND o.message_id = t.number FOR UPDATE SKIP LOCKED
        ) AS f));
    END IF;
    IF bodies IS NOT NULL AND NOT alone THEN
      DELETE FROM {device}.chunk AS c WHERE c.body_id = ANY(bodies);
    END IF;
  END IF;
  INSERT INTO {device}.counter AS c (space_id, queue_id, slot, generation, sequence, messages, pages, size, enqueued,
                                     dequeued, expired, discarded, moved)
  SELECT of_space, t.id, of_slot, 0, 0, -t.number, -t.room, -t.bytes, 0, t.number, 0, 0, 0
  FROM unnest(
    ARRAY[of_queue, of_parent, 0], ARRAY[its_count, gone, gone], ARRAY[its_pages, gone_pages, gone_pages],
    ARRAY[its_size, gone_size, gone_size]
  ) AS t (id, number, room, bytes)
  WHERE t.id = of_queue OR (t.number > 0 AND (t.id > 0 OR alone))
  ON CONFLICT (space_id, queue_id, slot) DO UPDATE
  SET messages = c.messages + excluded.messages, pages = c.pages + excluded.pages, size = c.size + excluded.size,
      dequeued = c.dequeued + excluded.dequeued;
  RETURN ARRAY[gone, gone_pages, gone_size];
END
$function$;


-- The places of a consumer are over. Nothing waits here, and nobody for it, however long the transaction is open: each
-- consumer adds rows of its own to `spent`, which qm_sweep subtracts in `share` later. Only of a message that has no
-- place but this one the row goes at once: nobody else but a sweep can have it, which is passed over.
--
-- of_queue       the consumer. numbers: the messages; each has a place of the consumer, which ends here.
-- how            as in `spent`; at_time: now.
--
-- It gives those of the messages whose last place that was: the caller deletes them. There may be more of them, where
-- other transactions do the same beside this.
CREATE FUNCTION {device}.qm_spend(of_queue integer, numbers bigint[], how integer, at_time bigint)
RETURNS bigint[] LANGUAGE plpgsql AS $function$
#variable_conflict use_variable
DECLARE
  last_numbers bigint[];
BEGIN
  -- A transaction that sees all as it was once must not lock what a sweep has written since then.
  IF current_setting('transaction_isolation') = 'read committed' THEN
    last_numbers := ARRAY(
      SELECT s.message_id FROM {device}.share AS s
      WHERE s.message_id = ANY(numbers)
        AND s.places - (SELECT count(*) FROM {device}.spent AS p WHERE p.message_id = s.message_id) < 2
      ORDER BY s.message_id FOR UPDATE SKIP LOCKED);
    IF last_numbers <> '{}' THEN
      DELETE FROM {device}.spent AS p WHERE p.message_id = ANY(last_numbers);
      DELETE FROM {device}.share AS s WHERE s.message_id = ANY(last_numbers);
    END IF;
  END IF;
  INSERT INTO {device}.spent (message_id, consumer_id, how, at)
  SELECT s.message_id, of_queue, how, at_time FROM {device}.share AS s WHERE s.message_id = ANY(numbers);
  -- One that came with a single place has never had a row.
  RETURN ARRAY(
    SELECT t.number FROM unnest(numbers) AS t (number)
    WHERE NOT EXISTS (SELECT FROM {device}.share AS s WHERE s.message_id = t.number));
END
$function$;


-- What consumers have recorded in `spent` is subtracted in `share`, and messages go that have no place any more. What
-- another transaction has is passed over, so that nothing waits here.
--
-- volume_lock    the key of the volume's lock.
-- of_space       the queue space; of_slot: whose rows of the counters are written.
-- most           how many rows of `spent` are looked at, of messages with numbers beyond that of `beyond`; or those of
--                `of_messages` alone.
-- turn           the key of a lock that whoever sweeps has, where given; it is asked for so many times, each five
--                milliseconds after the one before, as `looks` says. Without it the sweep goes on all the same.
--
-- It gives a list of numbers: how many rows it has looked at, the number of the last message, and how many messages
-- have gone.
CREATE FUNCTION {device}.qm_sweep(
  volume_lock bigint, of_space integer, of_slot integer, most bigint, beyond bigint DEFAULT 0,
  of_messages bigint[] DEFAULT NULL, turn bigint DEFAULT NULL, looks integer DEFAULT 0
) RETURNS bigint[] LANGUAGE plpgsql AS $function$
#variable_conflict use_variable
DECLARE
  numbers bigint[] := of_messages;
  seen bigint := 0;
  last_seen bigint := 0;
  shared bigint[];
  places bigint[];
  swept bigint[];
  counts bigint[];
  hows bigint[];
  less bigint[];
  less_by bigint[];
  gone bigint[];
  gone_how bigint[];
  queues bigint[];
  all_pages bigint[];
  sizes bigint[];
  its_hows bigint[];
  moments bigint[];
  bodies bigint[];
BEGIN
  IF pg_advisory_xact_lock_shared(volume_lock) IS NULL
     OR current_setting('transaction_isolation') <> 'read committed' THEN
    RETURN ARRAY[0, 0, 0]::bigint[];
  END IF;
  FOR look IN 1 .. looks LOOP
    EXIT WHEN pg_try_advisory_xact_lock(turn);
    PERFORM pg_sleep(0.005);
  END LOOP;
  IF numbers IS NULL THEN
    SELECT array_agg(DISTINCT t.message_id), count(*), max(t.message_id) INTO numbers, seen, last_seen
    FROM (
      SELECT p.message_id FROM {device}.spent AS p
      WHERE p.message_id > greatest(beyond, of_space::bigint << 48) AND p.message_id < (of_space + 1)::bigint << 48
      ORDER BY p.message_id LIMIT most
    ) AS t;
  END IF;
  SELECT array_agg(f.message_id), array_agg(f.places::bigint) INTO shared, places
  FROM (
    SELECT s.message_id, s.places FROM {device}.share AS s
    WHERE s.message_id = ANY(numbers) ORDER BY s.message_id FOR UPDATE SKIP LOCKED
  ) AS f;
  IF shared IS NULL THEN
    RETURN ARRAY[seen, last_seen, 0];
  END IF;
  -- How a message goes is how the last of its places went. All lists ascend, so that a number is found in them quickly.
  WITH its AS (
    DELETE FROM {device}.spent AS p WHERE p.message_id = ANY(shared) RETURNING p.message_id, p.how, p.at
  ), of_each AS (
    SELECT i.message_id, count(*) AS number, (array_agg(i.how ORDER BY i.at DESC))[1]::bigint AS how
    FROM its AS i GROUP BY i.message_id
  )
  SELECT array_agg(e.message_id), array_agg(e.number), array_agg(e.how) INTO swept, counts, hows
  FROM (SELECT * FROM of_each AS o ORDER BY o.message_id) AS e;
  SELECT array_agg(u.number) FILTER (WHERE u.left_over > 0), array_agg(u.count) FILTER (WHERE u.left_over > 0),
         array_agg(u.number) FILTER (WHERE u.left_over < 1), array_agg(u.how) FILTER (WHERE u.left_over < 1)
  INTO less, less_by, gone, gone_how
  FROM (
    SELECT t.number, t.count, t.how, places[width_bucket(t.number, shared)] - t.count AS left_over
    FROM unnest(swept, counts, hows) AS t (number, count, how)
  ) AS u;
  IF less IS NOT NULL THEN
    UPDATE {device}.share AS s SET places = s.places - less_by[width_bucket(s.message_id, less)]
    WHERE s.message_id = ANY(less);
  END IF;
  IF gone IS NULL THEN
    RETURN ARRAY[seen, last_seen, 0];
  END IF;
  DELETE FROM {device}.share AS s WHERE s.message_id = ANY(gone);
  WITH its AS (
    FORGET FROM {device} WHERE m.id = ANY(gone)
    RETURNING m.id, m.queue_id, m.pages, m.size, m.expires_at, m.body_id, gone_how[width_bucket(m.id, gone)] AS how
  )
  SELECT array_agg(t.id), array_agg(t.queue_id::bigint), array_agg(t.pages), array_agg(t.size), array_agg(t.how),
         array_agg(t.expires_at), array_agg(t.body_id) FILTER (WHERE t.body_id IS NOT NULL)
  INTO gone, queues, all_pages, sizes, its_hows, moments, bodies FROM its AS t;
  IF bodies IS NOT NULL THEN
    DELETE FROM {device}.chunk AS c WHERE c.body_id = ANY(bodies);
  END IF;
  -- What somebody has here who looks for what has expired, he forgets himself.
  DELETE FROM {device}.expiring AS e WHERE e.ctid = ANY(ARRAY(
    SELECT f.place FROM unnest(queues, moments, gone) AS t (queue_id, moment, number) CROSS JOIN LATERAL (
      SELECT o.ctid AS place FROM {device}.expiring AS o
      WHERE o.queue_id = t.queue_id AND o.expires_at = t.moment AND o.message_id = t.number FOR UPDATE SKIP LOCKED
    ) AS f));
  INSERT INTO {device}.counter AS c (space_id, queue_id, slot, generation, sequence, messages, pages, size, enqueued,
                                     dequeued, expired, discarded, moved)
  SELECT of_space, q.id, of_slot, 0, 0, -count(*), -sum(t.pages)::bigint, -sum(t.size)::bigint, 0,
         count(*) FILTER (WHERE t.how = 0), count(*) FILTER (WHERE t.how = 1), count(*) FILTER (WHERE t.how = 2),
         count(*) FILTER (WHERE t.how = 3)
  FROM unnest(queues, all_pages, sizes, its_hows) AS t (queue_id, pages, size, how)
  CROSS JOIN LATERAL unnest(ARRAY[0, t.queue_id]) AS q (id)
  GROUP BY q.id
  ON CONFLICT (space_id, queue_id, slot) DO UPDATE
  SET messages = c.messages + excluded.messages, pages = c.pages + excluded.pages, size = c.size + excluded.size,
      dequeued = c.dequeued + excluded.dequeued, expired = c.expired + excluded.expired,
      discarded = c.discarded + excluded.discarded, moved = c.moved + excluded.moved;
  RETURN ARRAY[seen, last_seen, cardinality(gone)];
END
$function$;


-- A value in a body, for conditions: it means what qmcore.json_values says, which reads bodies elsewhere. The type json
-- keeps a text as it is, and of members of the same name gives the last; jsonb refuses numbers that are too large.
--
-- content        the body; null where it has no values.
-- path           its steps: "." and the name of a member, or "[" and the index of an element.
-- is_there       true where there is a value which is not null, of whatever type.
-- words, number, truth: the value, in the one for its type; none has an object, a list, or a number that is too long.
CREATE FUNCTION {device}.qm_body(content bytea, path text[], OUT is_there boolean, OUT words text, OUT number numeric,
                                 OUT truth boolean)
LANGUAGE plpgsql STABLE STRICT COST 10000 AS $function$
DECLARE
  document text;
  outside text;
  value json;
  step text;
BEGIN
  document := convert_from(content, 'UTF8');
  IF length(document) - length(translate(document, '[{', '')) > 256 THEN
    -- Where so many begin, they may be nested more than 256 deep. Each round takes away those with nothing within.
    outside := regexp_replace(document, '"(?:[^"\\]|\\.)*"', '', 'g');
    outside := translate(regexp_replace(outside, '[^][{}]+', '', 'g'), '{}', '[]');
    FOR level IN 1..256 LOOP
      EXIT WHEN outside = '';
      outside := replace(outside, '[]', '');
    END LOOP;
    IF outside <> '' THEN
      RETURN;
    END IF;
  END IF;
  IF strpos(document, '\u0000') > 0 THEN
    -- Without escaped backslashes each that is left begins an escape.
    document := replace(replace(document, '\\', '\u005c'), '\u0000', '\ufffd');
  END IF;
  value := document::json;
  FOREACH step IN ARRAY path LOOP
    IF left(step, 1) = '[' AND json_typeof(value) = 'array' THEN
      value := value -> substr(step, 2)::integer;
    ELSIF left(step, 1) = '.' AND json_typeof(value) = 'object' THEN
      value := value -> substr(step, 2);
    ELSE
      RETURN;
    END IF;
    IF value IS NULL THEN
      RETURN;
    END IF;
  END LOOP;
  CASE json_typeof(value)
    WHEN 'string' THEN
      words := value #>> '{}';
    WHEN 'number' THEN
      document := value::text;
      IF length(document) <= 1000 AND document ~ '^[-.0-9]+([eE][-+]?0*[0-9]{1,3})?$' THEN
        number := document::numeric;
      END IF;
    WHEN 'boolean' THEN
      truth := value::text = 'true';
    WHEN 'null' THEN
      RETURN;
    ELSE
      NULL;
  END CASE;
  is_there := true;
EXCEPTION WHEN data_exception THEN
  -- It is no JSON, or has half of a surrogate pair: it has no values.
  NULL;
END
$function$;
