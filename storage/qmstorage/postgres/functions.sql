-- The functions of a volume on PostgreSQL, schema version 3: what a store does to messages, in one call each.
--
-- {device} is the schema of the volume and {memory} that of its non-persistent messages. Both are written out: the path
-- in which an application looks for tables does not matter. A function acts with the rights of whoever calls it. Each
-- statement in it sees what others have committed before it began, so that the lock of the volume, which is taken
-- first, holds for all that is looked at. Each expression and each statement of PL/pgSQL takes about 1 and 5
-- microseconds: what most messages have no use for stands behind one test.

-- Messages arrive in a queue, or are refused, and then nothing was changed.
--
-- volume_lock    the key of the volume's lock.
-- of_space       the queue space; known: its generation; most_messages, most_pages, most_memory: what it may hold. The
--                last is 0 where it has no non-persistent messages. has_memory: the caller has a part in them.
-- of_slot        whose rows of the counters are written. mark: where given, the row of the queue space tells by it who
--                writes it, and then also the last sequence number; this is for one message that goes to the disk.
-- brought        how many messages come, with pages and size; memory_brought and so on: of those that go to memory.
--                All are 0 where a former call in the transaction has counted these messages, and found room for them.
-- arrivals       their rows as they will stand, but: an order key lacks the sequence number and the end, an identifier
--                is null unless it was given before, and body_id is 0 where the body is kept apart. The caller does
--                that once it has the identifier.
-- kinds          a byte for each: 1 where the sequence number in the key is inverted, plus 2 where it goes to memory.
-- group_id       of messages that stay together: 0, or the identifier of the first where that has come before.
-- candidates     the numbers that a message may have which others are to stand before, the best first; candidate_of: of
--                which of such messages it is, from 1; stands_before: for each arrival, which of them it stands before.
-- level_...      high limits with a command that these messages may reach, as in qmcore.transitions.Level; level_lock:
--                the key of a claim; of_owner: who claims.
--
-- It gives what qmcore.transitions.Refused has, with a reason; without one the sequence numbers, which of the limits
-- are reached and claimed (from 1), at which use, whether anybody waits for the queue, and, where there is no mark, the
-- number of the transaction.
CREATE FUNCTION {device}.qm_enqueue(
  volume_lock bigint, of_space integer, known bigint, most_messages bigint, most_pages bigint, most_memory bigint,
  of_queue integer, at_time bigint, of_slot integer, mark bigint,
  brought bigint, pages bigint, size bigint, kinds bytea, arrivals {device}.message[],
  has_memory boolean DEFAULT false, memory_brought bigint DEFAULT 0, memory_pages bigint DEFAULT 0,
  memory_size bigint DEFAULT 0, group_id bigint DEFAULT NULL,
  candidates bigint[] DEFAULT NULL, candidate_of integer[] DEFAULT NULL, stands_before integer[] DEFAULT NULL,
  of_owner bigint DEFAULT NULL, level_memory boolean[] DEFAULT NULL, level_unit text[] DEFAULT NULL,
  level_at bigint[] DEFAULT NULL, level_capacity bigint[] DEFAULT NULL, level_lock bigint[] DEFAULT NULL,
  OUT reason integer, OUT used bigint, OUT most bigint, OUT wanted bigint,
  OUT numbers bigint[], OUT reached integer[], OUT reached_at bigint[], OUT is_awaited boolean, OUT transaction_number text
) LANGUAGE plpgsql AS $function$
#variable_conflict use_variable
DECLARE
  used_messages bigint;
  used_pages bigint;
  memory_messages bigint;
  memory_used bigint;
  place_keys bytea[];
  place_key bytea;
  first_candidate bigint;
  arrival {device}.message;
  number bigint;
  on_disk {device}.message[];
  in_memory {device}.message[];
  measured bigint;
  written bigint;
BEGIN
  IF pg_advisory_xact_lock_shared(volume_lock) IS NULL THEN
    RETURN;
  END IF;
  SELECT CASE WHEN max(c.generation) FILTER (WHERE c.slot = 0) IS DISTINCT FROM known THEN 0
              WHEN most_memory > 0 OR sum(c.messages)::bigint + brought > most_messages OR sum(c.pages)::bigint + pages > most_pages
              THEN -1 END,
         sum(c.messages)::bigint, sum(c.pages)::bigint, EXISTS (SELECT FROM {device}.waiter AS w WHERE w.queue_id = of_queue)
  INTO reason, used_messages, used_pages, is_awaited
  FROM {device}.counter AS c WHERE c.space_id = of_space AND c.queue_id = 0;
  IF reason = 0 THEN
    RETURN;
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
        AND NOT EXISTS (SELECT FROM {device}.history AS h WHERE h.message_id = m.id);
      IF place_key IS NULL AND has_memory THEN
        SELECT nullif(m.order_key, '') INTO place_key FROM {memory}.message AS m
        WHERE m.id = candidates[i] AND m.queue_id = of_queue;
      END IF;
      place_keys[candidate_of[i]] := place_key;
      IF place_key IS NULL AND candidate_of[i] IS DISTINCT FROM candidate_of[i + 1] THEN
        reason := 5;
        used := of_queue;
        wanted := first_candidate;
        RETURN;
      END IF;
    END LOOP;
  END IF;

  IF reason = -1 THEN
    -- There is too little room, or that of the memory is to be seen too.
    SELECT coalesce(sum(c.messages), 0)::bigint, coalesce(sum(c.pages), 0)::bigint INTO memory_messages, memory_used
    FROM {memory}.counter AS c WHERE c.space_id = of_space AND c.queue_id = 0 AND most_memory > 0;
    IF brought + memory_brought > 0 AND used_messages + memory_messages + brought + memory_brought > most_messages THEN
      reason := 1;
      used := used_messages + memory_messages;
      most := most_messages;
      wanted := brought + memory_brought;
      RETURN;
    ELSIF memory_brought > 0 AND NOT has_memory THEN
      reason := 4;
      RETURN;
    ELSIF brought > 0 AND used_pages + pages > most_pages THEN
      reason := 2;
      used := used_pages;
      most := most_pages;
      wanted := pages;
      RETURN;
    ELSIF memory_brought > 0 AND memory_used + memory_pages > most_memory THEN
      reason := 3;
      used := memory_used;
      most := most_memory;
      wanted := memory_pages;
      RETURN;
    END IF;
    reason := NULL;
  END IF;

  FOR i IN 1 .. cardinality(arrivals) LOOP
    arrival := arrivals[i];
    number := nextval(('{device}.sequence_' || of_space)::regclass);
    numbers := numbers || number;
    arrival.id := coalesce(arrival.id, of_space::bigint << 48 | number);
    IF stands_before[i] > 0 OR group_id IS NOT NULL OR arrival.body_id IS NOT NULL THEN
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
    arrival.order_key :=
      arrival.order_key || int8send(number # -(get_byte(kinds, i - 1) & 1)::bigint) || '\x80'::bytea;
    IF brought = 1 AND memory_brought = 0 THEN
      -- One alone, as most come: the statement for several takes the server half as long again.
      INSERT INTO {device}.message VALUES (arrival.*);
      IF arrival.available_at > at_time THEN
        INSERT INTO {device}.due (queue_id, available_at, message_id, order_key, retries)
        VALUES (of_queue, arrival.available_at, arrival.id, arrival.order_key, 0);
      ELSE
        INSERT INTO {device}.ready (queue_id, order_key, message_id, retries)
        VALUES (of_queue, arrival.order_key, arrival.id, 0);
      END IF;
      IF arrival.expires_at IS NOT NULL THEN
        INSERT INTO {device}.expiring (queue_id, expires_at, message_id)
        VALUES (of_queue, arrival.expires_at, arrival.id);
      END IF;
    ELSIF get_byte(kinds, i - 1) < 2 THEN
      on_disk := on_disk || arrival;
    ELSE
      in_memory := in_memory || arrival;
    END IF;
  END LOOP;

  IF brought > 0 THEN
    UPDATE {device}.counter AS c
    SET sequence = CASE WHEN mark IS NULL THEN c.sequence ELSE number END, messages = c.messages + brought,
        pages = c.pages + pages, size = c.size + size, enqueued = c.enqueued + brought,
        highest = CASE c.queue_id WHEN 0 THEN greatest(c.highest, used_messages + brought) ELSE c.highest END
    WHERE c.space_id = of_space AND c.queue_id IN (0, of_queue) AND c.slot = of_slot;
    GET DIAGNOSTICS written = ROW_COUNT;
    IF written < 2 THEN
      -- The first of this slot in the queue.
      INSERT INTO {device}.counter (space_id, queue_id, slot, generation, sequence, messages, pages, size, enqueued,
                                    dequeued, expired, discarded, moved, highest)
      SELECT of_space, q.id, of_slot, coalesce(mark, 0), CASE WHEN mark IS NULL THEN 0 ELSE number END,
             brought, pages, size, brought, 0, 0, 0, 0, CASE q.id WHEN 0 THEN used_messages + brought ELSE 0 END
      FROM unnest(ARRAY[0, of_queue]) AS q (id)
      ON CONFLICT DO NOTHING;
    END IF;
  END IF;
  IF mark IS NOT NULL THEN
    RETURN;
  END IF;

  transaction_number := pg_current_xact_id()::text;
  IF on_disk IS NOT NULL THEN
    WITH stored AS (
      INSERT INTO {device}.message SELECT * FROM unnest(on_disk) RETURNING id, order_key, available_at, expires_at
    ), stands AS (
      INSERT INTO {device}.ready (queue_id, order_key, message_id, retries)
      SELECT of_queue, s.order_key, s.id, 0 FROM stored AS s WHERE (s.available_at > at_time) IS NOT TRUE
    ), waits AS (
      INSERT INTO {device}.due (queue_id, available_at, message_id, order_key, retries)
      SELECT of_queue, s.available_at, s.id, s.order_key, 0 FROM stored AS s WHERE s.available_at > at_time
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
    WHERE c.space_id = of_space AND c.queue_id IN (0, of_queue) AND c.slot = of_slot;
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
      reached := reached || i;
      reached_at := reached_at || measured;
    END IF;
  END LOOP;
END
$function$;
