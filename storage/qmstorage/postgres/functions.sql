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
  level_at bigint[] DEFAULT NULL, level_capacity bigint[] DEFAULT NULL, level_lock bigint[] DEFAULT NULL
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
          AND NOT EXISTS (SELECT FROM {device}.history AS h WHERE h.message_id = m.id);
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
    -- One alone, as most come. As a row of a function it is stored as it is, without an expression for each column.
    arrival.id := coalesce(arrival.id, of_space::bigint << 48 | number);
    arrival.order_key := arrival.order_key || int8send(number # -(get_byte(kinds, 0) & 1)::bigint) || '\x80'::bytea;
    WITH stored AS (
      INSERT INTO {device}.message SELECT * FROM unnest(ARRAY[arrival])
    ), stands AS (
      INSERT INTO {device}.ready (queue_id, order_key, message_id, retries)
      SELECT of_queue, arrival.order_key, arrival.id, 0 WHERE (arrival.available_at > at_time) IS NOT TRUE
    )
    UPDATE {device}.counter AS c
    SET sequence = CASE WHEN mark IS NULL THEN c.sequence ELSE number END, messages = c.messages + brought,
        pages = c.pages + pages, size = c.size + size, enqueued = c.enqueued + brought,
        highest = CASE c.queue_id WHEN 0 THEN greatest(c.highest, used_messages + brought) ELSE c.highest END
    WHERE c.space_id = of_space AND c.queue_id IN (0, of_queue) AND c.slot = of_slot;
    GET DIAGNOSTICS written = ROW_COUNT;
    IF written = 2 AND mark IS NOT NULL AND arrival.expires_at IS NULL AND arrival.available_at IS NULL THEN
      RETURN ARRAY[done, number];
    END IF;
    numbers := ARRAY[number];
    IF arrival.available_at > at_time THEN
      INSERT INTO {device}.due (queue_id, available_at, message_id, order_key, retries)
      VALUES (of_queue, arrival.available_at, arrival.id, arrival.order_key, 0);
    END IF;
    IF arrival.expires_at IS NOT NULL THEN
      INSERT INTO {device}.expiring (queue_id, expires_at, message_id)
      VALUES (of_queue, arrival.expires_at, arrival.id);
    END IF;
  ELSE
    FOR i IN 1 .. cardinality(arrivals) LOOP
      arrival := arrivals[i];
      number := coalesce(number, nextval(('{device}.sequence_' || of_space)::regclass));
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
      IF get_byte(kinds, i - 1) < 2 THEN
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
      WHERE c.space_id = of_space AND c.queue_id IN (0, of_queue) AND c.slot = of_slot;
      GET DIAGNOSTICS written = ROW_COUNT;
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
      reached := reached || i::bigint;
      reached_at := reached_at || measured;
    END IF;
  END LOOP;
  RETURN ARRAY[done, pg_current_xact_id()::text::bigint, coalesce(cardinality(reached), 0)]
         || numbers || reached || reached_at;
END
$function$;
