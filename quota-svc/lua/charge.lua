-- Charges API keys and the demo: reads each record, applies the limits and writes the new counts.
--
-- KEYS[i]      record of the i-th charge group (`…:k`), or the demo's counter (`…:d`). None if the records are in several
--              slots of a Cluster's master: then ARGV[5] is their number, and they follow it, before the counts
-- ARGV[1]      daily limit of keys without their own limit
-- ARGV[2]      burst limit: requests within 60,000 ms
-- ARGV[3]      daily limit of the demo, or '' if no group is the demo
-- ARGV[4]      the time in ms, or '' for this server's clock (tests set it to cross midnight)
-- ARGV[4 + i]  count, the number of charges in the i-th group: 1 to 1,023, or 0 to read the demo; all are omitted if every group has one charge and
--              no origin
-- ARGV[4 + #KEYS + i]  hash of the origin of the i-th group's requests (16 bytes), or '' if they have none; all are omitted if
--              no group has one
-- returns      one string of 8-byte little-endian numbers: the time in ms, then two numbers per group. Integers would be
--              slower: each costs time here and in quota-svc. The two numbers are:
--              status: limit * 64 + outcome * 4 + scope
--                outcome: 0 counted, 1 unknown key, 2 inactive, 3 already paused, 4 invalid record,
--                         5 counted, then paused; 6 and 7 are 0 and 5 after correcting a day from the future;
--                         9 expired; 10 wrong origin; 11 suspended; 12 nothing was written, because the record can't be accessed: it is probably on another server
--              counts: used * 2^20 + allowed * 1024 + over_daily (exact in a double); for 9, when the key expired, in seconds
--                used: requests allowed today, including these; over_daily: charges over the daily limit
--
-- Atomic because state, burst window and daily count must be checked together: otherwise two replicas of quota-svc
-- could both allow the last request. One call charges a whole batch, in a Cluster its groups of one master. After a write
-- the script must not fail, because the charges of all groups would: so the first read of a record uses `pcall`. A pause, and a count
-- that reaches a level of the daily limit, are announced in the same step (announce.lua, which precedes this text).
-- The offsets are those of "Record format" in docs/architecture.md. Never add a shebang: it would limit the script to one slot.
--
-- Performance: every call runs the script from the top, so setup code costs time even for one charge. The hot path is
-- inline in the loop. Rare code is in functions that use only their arguments, because Lua allocates an upvalue for
-- each outer local that a function uses, and 36 of them cost as much as three commands. On the hot path, numeric
-- command arguments are strings: Redis formats a Lua number with 17 digits, which makes a GETRANGE 50% slower.
-- `+ 0` converts a string to a number in less than half the time of `tonumber`. In formats of `struct`, each letter
-- costs time, and so does a digit: `L`, `I` and `H` have 8, 4 and 2 bytes, as C's unsigned long, int and short. `L` passes
-- over 8 bytes faster than eight `x`. It has 8 bytes only on a 64-bit server.

-- Moves the count of a finished day to the usage history. Days without requests become 0.
local function roll_over(key, day, used, today)
  redis.call('SETRANGE', key, 60 + 4 * (day % 31), struct.pack('<I4', used))
  for idle = math.max(day + 1, today - 31), today - 1 do
    redis.call('SETRANGE', key, 60 + 4 * (idle % 31), '\0\0\0\0')
  end
end

-- Corrects the day of a record that was charged under a clock more than a day ahead; otherwise the key would be denied
-- until that day. Returns today's count: that of the future day, and what was already counted today. The entries of the
-- history after today now stand for days a month ago. The same as KeyRecord::correct_day in src/domain/record.rs.
local function correct_day(key, day, used, today)
  if day - today <= 31 then
    local at = 60 + 4 * (today % 31)
    local counted = redis.call('GETRANGE', key, at, at + 3)
    if #counted == 4 then used = math.min(2 ^ 32 - 1, used + struct.unpack('<I4', counted)) end
  end
  for later = today + 1, math.min(day, today + 31) do
    redis.call('SETRANGE', key, 60 + 4 * (later % 31), '\0\0\0\0')
  end
  return used
end

local function pause(key, flags, now, burst, announcing)
  local announce = announcing()
  local at, pending = struct.pack('<I8', now), announce(key, 'key.paused', now, burst, 0) and 0 or 1
  redis.call('SETRANGE', key, 2, struct.pack('<BB', 1, flags - flags % 2 + pending))
  redis.call('SETRANGE', key, 8, at)
  redis.call('SETRANGE', key, 48, at)
end

-- Returns how many arrivals of a full ring have expired at `at`, counted from the oldest. It looks at up to 16 of them
-- in one read, so that the next charges find room without another read. Returns nil if the ring is truncated: an error
-- would abort the script and with it the charges of other keys.
local function count_expired(key, ring, capacity, head, at)
  local checked = math.min(16, capacity - head)
  if checked < 1 then return nil end
  local from = ring + 4 * head
  local oldest = redis.call('GETRANGE', key, string.format('%d', from), string.format('%d', from + 4 * checked - 1))
  if #oldest < 4 * checked then return nil end
  local low = at % 2 ^ 32
  local function is_expired(i)
    return (low - struct.unpack('<I4', oldest, 4 * i - 3)) % 2 ^ 32 >= 60000
  end
  if is_expired(checked) then return checked end
  local count = 0
  while is_expired(count + 1) do count = count + 1 end
  return count
end

-- Grows a full ring that has no expired arrivals: rotates it so that the oldest arrival has index 0, and returns the
-- new capacity.
local function grow(key, ring, capacity, head, burst)
  if head > 0 then
    local arrivals = redis.call('GETRANGE', key, ring, ring + 4 * capacity - 1)
    local ordered = string.sub(arrivals, 4 * head + 1) .. string.sub(arrivals, 1, 4 * head)
    redis.call('SETRANGE', key, ring, ordered)
  end
  return math.min(burst, math.max(8, capacity * 2))
end

-- Shrinks a ring to the last `burst` arrivals, with the oldest at index 0. Loses nothing: if the limit is not exceeded,
-- all older arrivals have expired. Returns the new number of arrivals, or nil if the ring is truncated.
local function shrink(key, ring, capacity, len, head, burst)
  if len == 0 then return 0 end
  local arrivals = redis.call('GETRANGE', key, ring, ring + 4 * capacity - 1)
  if #arrivals < 4 * (head > 0 and capacity or len) or head >= capacity then return nil end
  local ordered = string.sub(arrivals, 4 * head + 1) .. string.sub(arrivals, 1, 4 * head)
  local kept = math.min(len, burst)
  redis.call('SETRANGE', key, ring, string.sub(ordered, 4 * (len - kept) + 1, 4 * len))
  return kept
end

-- Moves a burst window from its latest arrival `last` back to `now`: an arrival becomes `now` if it was later. One that
-- had expired stays expired, because not every ring still contains it. Returns false if the ring is damaged. The same as
-- BurstWindow::move_back in src/domain/window.rs.
local function move_back(key, ring, capacity, len, head, last, now)
  local arrivals = redis.call('GETRANGE', key, ring, ring + 4 * capacity - 1)
  if #arrivals < 4 * math.min(capacity, head + len) or (head > 0 and head >= capacity) then return false end
  local moved = string.gsub(arrivals, '....', function(arrival)
    local age = (last - struct.unpack('<I4', arrival)) % 2 ^ 32
    local new_age = age < 60000 and math.max(0, age - (last - now)) or 60000
    return struct.pack('<I4', (now - new_age) % 2 ^ 32)
  end)
  redis.call('SETRANGE', key, ring, moved)
  return true
end

-- Returns the status and the counts of a key that is denied regardless of its limits, and of an invalid record. Returns nil if
-- the limits decide. `ring` is where the hashes of the allowed origins end. KeyRecord::denial in src/domain/record.rs does the
-- same, except for pauses and invalid records.
local function denial(key, header, ring, expires, now, origin, announcing)
  local version, scope, state, flags = struct.unpack('<BBBB', header)
  if version ~= 1 or scope > 2 or state > 2 then return 16, 0 end
  if math.floor(flags / 4) % 2 == 1 then return 44, 0 end -- suspended
  if state == 2 then return 8, 0 end
  if expires > 0 and now >= expires * 1000 then return 36, expires end
  if math.floor(flags / 2) % 2 == 1 then -- restricted
    local hashes = redis.call('GETRANGE', key, 200, ring - 1)
    if ring == 200 or #hashes < ring - 200 then return 16, 0 end
    local is_allowed = false
    for at = 1, #hashes, 16 do is_allowed = is_allowed or string.sub(hashes, at, at + 15) == origin end
    if not is_allowed then return 40, 0 end
  end
  if state == 0 then return nil end
  if flags % 2 == 1 then
    local _, _, announce_pending = announcing()
    announce_pending(key, header)
  end
  return 12, 0
end

local function charge_demo(key, count, limit, today)
  local counter = redis.pcall('GET', key)
  if type(counter) == 'table' then return string.find(counter.err, 'WRONGTYPE', 1, true) and 16 or 48, 0 end
  local day, used, outcome = today, 0, 0
  if counter and #counter == 8 then
    day, used = struct.unpack('<I4I4', counter)
    if today > day then day, used = today, 0 end
    if day > today + 1 then day, outcome = today, 6 end -- counted under a wrong clock: moves to today
  end
  local allowed = math.max(0, math.min(count, limit - used))
  if allowed > 0 or outcome == 6 then
    used = used + allowed
    redis.call('SET', key, struct.pack('<I4I4', day, used), 'EX', 172800)
  end
  return limit * 64 + outcome * 4, used * 1048576 + allowed * 1024 + (count - allowed)
end

local call, pcall, format = redis.call, redis.pcall, string.format
local pack, unpack = struct.pack, struct.unpack
local WINDOW, DAY = 60000, 86400000
local records, argv = KEYS, ARGV
local groups, before, rest = #KEYS, 0, 4 -- `before`, `rest`: arguments before the records, and before the counts
if groups == 0 then
  records, groups, before = argv, argv[5] + 0, 5
  rest = 5 + groups
end
local daily_default, burst, demo_limit = argv[1] + 0, argv[2] + 0, argv[3]
local now
if argv[4] == '' then
  local time = call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
else
  now = argv[4] + 0
end
local today = math.floor(now / DAY)
local now_stamp = pack('<I', now % 2 ^ 32)

local reply = { pack('<L', now) }
for i = 1, groups do
  local key, count = records[before + i], (argv[rest + i] or 1) + 0
  local status, counts = 16, 0 -- outcome 4: invalid record
  repeat -- runs once: `break` skips the rest and keeps the status
    if demo_limit ~= '' and string.sub(key, -1) == 'd' then -- the demo
      status, counts = charge_demo(key, count, demo_limit + 0, today)
      break
    end
    local header = pcall('GETRANGE', key, '0', '47')
    if #header < 48 then -- an error is a table without elements, so its length is 0, too
      if header == '' then
        status = 4
      elseif header.err and not string.find(header.err, 'WRONGTYPE', 1, true) then
        status = 48 -- outcome 12: can't be accessed
      end
      break
    end
    local first, own_limit, _, expires, day, used, last, _, capacity, len, head = unpack('<IILIIILIHHH', header)
    if len > capacity then break end
    -- The low three bytes of `first` are version, scope and state: 1 + 256 * scope for an active key. Its highest byte has the
    -- flags: 2^25 and more if the key is restricted or its account suspended.
    local scope, ring = (first % 2 ^ 24 - 1) / 256, 200
    if expires > 0 or first >= 33554432 or (scope ~= 2 and scope ~= 1 and scope ~= 0) then
      if first >= 33554432 then ring = 200 + 16 * unpack('<H', header, 47) end -- after the hashes of the allowed origins
      local denied, detail = denial(key, header, ring, expires, now, argv[rest + groups + i], announcing)
      if denied then
        status, counts = denied, detail
        break
      end
    end

    local limit = own_limit > 0 and own_limit or daily_default
    -- The highest byte of `day` is the level of the daily limit that was announced on that day.
    local level, corrected = 0, false
    if day >= 16777216 then
      local number = day % 16777216
      level, day = (day - number) / 16777216, number
    end
    if today > day then
      roll_over(key, day, used, today)
      day, used, level = today, 0, 0
    elseif day > today + 1 then
      day, used, corrected = today, correct_day(key, day, used, today), true
    end
    -- The window moves back with the clock only by more than a second: then the clock was ahead.
    local at, stamp = now, now_stamp
    if last > now then
      if last - now <= 1000 then
        at, stamp = last, pack('<I', last % 2 ^ 32)
      elseif move_back(key, ring, capacity, len, head, last, now) then
        last = now
      else
        break
      end
    end
    if at - last >= WINDOW then len, head = 0, 0 end
    if capacity > burst then -- another replica has a higher limit
      len = shrink(key, ring, capacity, len, head, burst)
      if not len then break end
      capacity, head = burst, 0
    end
    local allowed, over_daily, outcome = 0, 0, 0
    for _ = 1, count do
      if len == capacity then
        local expired = 0
        if capacity > 0 then expired = count_expired(key, ring, capacity, head, at) end
        if not expired then outcome = 4 break end
        if expired > 0 then
          head, len = (head + expired) % capacity, len - expired
        elseif capacity < burst then
          capacity, head = grow(key, ring, capacity, head, burst), 0
        else
          pause(key, math.floor(first / 2 ^ 24), now, burst, announcing)
          outcome = 5
          break
        end
      end
      call('SETRANGE', key, format('%d', ring + 4 * ((head + len) % capacity)), stamp)
      len = len + 1
      if used < limit then
        used, allowed = used + 1, allowed + 1
      else
        over_daily = over_daily + 1
      end
    end
    if outcome == 4 then break end
    if corrected then outcome = outcome == 5 and 7 or 6 end
    if (level == 0 and used * 5 >= limit * 4) or (level == 1 and used >= limit) or level > 2 then
      local reached = level % 4
      if allowed > 0 and used * 5 >= limit * 4 then reached = math.max(reached, used >= limit and 2 or 1) end
      if reached ~= level then
        local _, announce_level = announcing()
        level = announce_level(key, reached, now, limit, used)
      end
    end
    call('SETRANGE', key, '20', pack('<IILIHHH', day + level * 16777216, used, at, burst, capacity, len, head))
    status, counts = limit * 64 + outcome * 4 + scope, used * 1048576 + allowed * 1024 + over_daily
  until true
  reply[i + 1] = pack('<LL', status, counts)
end
return table.concat(reply)
