-- Charges API keys and the demo quota: reads a record, judges the requests and writes the outcome in one step.
--
-- KEYS[i]      the record of the i-th entry (`…:k`), or the demo's counter (`…:d`)
-- ARGV[1]      daily limit of keys without one of their own
-- ARGV[2]      burst limit: requests within 60,000 ms
-- ARGV[3]      daily limit of the demo
-- ARGV[4]      the time in ms, or '' for this server's own clock (tests step over midnight)
-- ARGV[4 + i]  how many requests the i-th entry has: 1 to 1,023; all left out where each has one
-- returns      the time in ms, then two integers for each entry (each has its price, here and where it is read):
--              limit * 32 + outcome * 4 + scope, and used * 2^20 + allowed * 1024 + refused
--              used: the day's count afterwards; refused: for the day's limit; all of it exact in a double
--              outcome: 0 judged, 1 unknown key, 2 inactive, 3 paused before, 4 unreadable, 5 judged and then paused
--
-- Why in one script: state, burst window and daily count must be judged together, or two replicas could both
-- admit the last request. One call carries a whole batch on a single server; in a Cluster it has one entry.
-- The offsets are those of the table in src/domain/record/codec.rs. A pause writes an event into the list beside
-- the record (`…:e`): that name is derived and not declared, which is sound because both share one hash tag.
--
-- Redis runs a script from the top with every call, so a call with one charge pays for all that is set up here. What
-- every charge goes through therefore stands in the loop, and what is rare in functions that use only their arguments:
-- Lua lays a cell for each outer variable that a function uses, and 36 of those cost as much as three commands.
-- A command's numbers are given as strings where every charge comes by: Redis formats a Lua number with 17 digits,
-- which makes a GETRANGE half as dear again. `+ 0` reads a number at less than half the price of `tonumber`.

-- Moves the count of a day that is over to its place; days without requests become 0.
local function roll_over(key, day, used, today)
  redis.call('SETRANGE', key, 44 + 4 * (day % 31), struct.pack('<I4', used))
  for idle = math.max(day + 1, today - 31), today - 1 do
    redis.call('SETRANGE', key, 44 + 4 * (idle % 31), '\0\0\0\0')
  end
end

local function pause(key, now, burst)
  redis.call('SETRANGE', key, 2, '\1')
  redis.call('SETRANGE', key, 8, struct.pack('<I8', now))
  local events = string.sub(key, 1, -2) .. 'e'
  local event = string.format('%.0f paused more than %d requests within 60 seconds', now, burst)
  redis.call('LPUSH', events, event)
  redis.call('LTRIM', events, 0, 99)
end

-- How many of a full ring's arrivals are over at `at`, counted from the oldest and as far as one small read shows them:
-- the next charges then find room without a read of their own. Nil where the ring is damaged: an error would end the
-- script, and with it the charges of others.
local function over(key, ring, places, head, at)
  local some = math.min(16, places - head)
  if some < 1 then return nil end
  local from = ring + 4 * head
  local oldest = redis.call('GETRANGE', key, string.format('%d', from), string.format('%d', from + 4 * some - 1))
  if #oldest < 4 * some then return nil end
  local low = at % 2 ^ 32
  local function is_over(i)
    return (low - struct.unpack('<I4', oldest, 4 * i - 3)) % 2 ^ 32 >= 60000
  end
  if is_over(some) then return some end
  local count = 0
  while is_over(count + 1) do count = count + 1 end
  return count
end

-- How many places a full ring gets where none of its arrivals is over. They are put in order first.
local function grow(key, ring, places, head, burst)
  if head > 0 then
    local arrivals = redis.call('GETRANGE', key, ring, ring + 4 * places - 1)
    local ordered = string.sub(arrivals, 4 * head + 1) .. string.sub(arrivals, 1, 4 * head)
    redis.call('SETRANGE', key, ring, ordered)
  end
  return math.min(burst, math.max(8, places * 2))
end

local function charge_demo(key, count, limit, today)
  local counter = redis.pcall('GET', key)
  if type(counter) == 'table' then return 16, 0 end
  local day, used = today, 0
  if counter and #counter == 8 then
    day, used = struct.unpack('<I4I4', counter)
    if today > day then day, used = today, 0 end
  end
  local allowed = math.max(0, math.min(count, limit - used))
  if allowed > 0 then
    used = used + allowed
    redis.call('SET', key, struct.pack('<I4I4', day, used), 'EX', 172800)
  end
  return limit * 32, used * 1048576 + allowed * 1024 + (count - allowed)
end

local call, pcall, byte, format = redis.call, redis.pcall, string.byte, string.format
local pack, unpack = struct.pack, struct.unpack
local WINDOW, DAY, RING = 60000, 86400000, 168
local daily_default, burst = ARGV[1] + 0, ARGV[2] + 0
local now
if ARGV[4] == '' then
  local time = call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
else
  now = ARGV[4] + 0
end
local today = math.floor(now / DAY)
local now_stamp = pack('<I4', now % 2 ^ 32)

local answer = { now }
for i, key in ipairs(KEYS) do
  local count = (ARGV[4 + i] or 1) + 0
  local verdict, counts = 16, 0
  repeat -- once: a break leaves the verdict as it is
    if byte(key, -1) == 100 then
      verdict, counts = charge_demo(key, count, ARGV[3] + 0, today)
      break
    end
    local header = pcall('GETRANGE', key, '0', '43')
    if type(header) == 'table' then break end
    if #header == 0 then verdict = 4 break end
    if #header < 44 or byte(header) ~= 1 then break end
    local scope, state, own, day, used, last, laid, places, len, head =
      unpack('<BBxI4xxxxxxxxI4I4I8I4I2I2I2', header, 2)
    if len > places then break end
    if state == 1 then verdict = 12 break end
    if state == 2 then verdict = 8 break end

    local limit = own > 0 and own or daily_default
    if today > day then
      roll_over(key, day, used, today)
      day, used = today, 0
    end
    local at, stamp = now, now_stamp
    if last > now then at, stamp = last, pack('<I4', last % 2 ^ 32) end
    if laid ~= burst then
      places, len, head = 0, 0, 0
    elseif at - last >= WINDOW then
      len, head = 0, 0
    end
    local allowed, refused, outcome = 0, 0, 0
    for _ = 1, count do
      if len == places then
        local free = 0
        if places > 0 then free = over(key, RING, places, head, at) end
        if not free then outcome = 4 break end
        if free > 0 then
          head, len = (head + free) % places, len - free
        elseif places < burst then
          places, head = grow(key, RING, places, head, burst), 0
        else
          pause(key, now, burst)
          outcome = 5
          break
        end
      end
      call('SETRANGE', key, format('%d', RING + 4 * ((head + len) % places)), stamp)
      len = len + 1
      if used < limit then
        used, allowed = used + 1, allowed + 1
      else
        refused = refused + 1
      end
    end
    if outcome == 4 then break end
    call('SETRANGE', key, '16', pack('<I4I4I8I4I2I2I2', day, used, at, burst, places, len, head))
    verdict, counts = limit * 32 + outcome * 4 + scope, used * 1048576 + allowed * 1024 + refused
  until true
  answer[2 * i], answer[2 * i + 1] = verdict, counts
end
return answer
