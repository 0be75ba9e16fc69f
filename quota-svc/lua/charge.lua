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
-- Where each charge comes by, a command's numbers are given as strings: Redis formats a Lua number with 17 digits,
-- which makes a GETRANGE half as dear again.

local call, byte, sub, format = redis.call, string.byte, string.sub, string.format
local pack, unpack = struct.pack, struct.unpack
local WINDOW, DAY, WRAP, RING = 60000, 86400000, 4294967296, 168
local daily_default, burst, demo_limit = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local now = tonumber(ARGV[4])
if not now then
  local time = call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local now_day = math.floor(now / DAY)
local now_stamp = pack('<I4', now % WRAP)

-- Moves the count of a day that is over to its place; days without requests become 0.
local function roll_over(key, day, used, today)
  call('SETRANGE', key, 44 + 4 * (day % 31), pack('<I4', used))
  for idle = math.max(day + 1, today - 31), today - 1 do
    call('SETRANGE', key, 44 + 4 * (idle % 31), '\0\0\0\0')
  end
end

local function pause(key)
  call('SETRANGE', key, 2, '\1')
  call('SETRANGE', key, 8, pack('<I8', now))
  local events = sub(key, 1, -2) .. 'e'
  call('LPUSH', events, format('%.0f paused more than %d requests within 60 seconds', now, burst))
  call('LTRIM', events, 0, 99)
end

-- How many of a full ring's arrivals are over, counted from the oldest and as far as one small read shows them: the
-- next charges then find room without a read of their own. Nil where the ring is damaged: an error would end the script,
-- and with it the charges of others.
local function over(key, places, head, low)
  local some = math.min(16, places - head)
  if some < 1 then return nil end
  local at = RING + 4 * head
  local oldest = call('GETRANGE', key, format('%d', at), format('%d', at + 4 * some - 1))
  if #oldest < 4 * some then return nil end
  local function is_over(i)
    return (low - unpack('<I4', oldest, 4 * i - 3)) % WRAP >= WINDOW
  end
  if is_over(some) then return some end
  local count = 0
  while is_over(count + 1) do count = count + 1 end
  return count
end

local function charge_key(key, count)
  local header = redis.pcall('GETRANGE', key, '0', '43')
  if type(header) == 'table' then return 16, 0 end
  if #header == 0 then return 4, 0 end
  if #header < 44 or byte(header) ~= 1 then return 16, 0 end
  local scope, state, own, day, used, last, laid, places, len, head =
    unpack('<BBxI4xxxxxxxxI4I4I8I4I2I2I2', header, 2)
  if len > places then return 16, 0 end
  if state == 1 then return 12, 0 end
  if state == 2 then return 8, 0 end

  local limit = own > 0 and own or daily_default
  if now_day > day then
    roll_over(key, day, used, now_day)
    day, used = now_day, 0
  end

  local at, stamp = now, now_stamp
  if last > now then at, stamp = last, pack('<I4', last % WRAP) end
  if laid ~= burst then
    places, len, head = 0, 0, 0
  elseif at - last >= WINDOW then
    len, head = 0, 0
  end
  local low = at % WRAP
  local allowed, refused, outcome = 0, 0, 0
  for _ = 1, count do
    if len == places then
      local free = 0
      if places > 0 then free = over(key, places, head, low) end
      if not free then return 16, 0 end
      if free > 0 then
        head, len = (head + free) % places, len - free
      elseif places < burst then
        if head > 0 then
          local ring = call('GETRANGE', key, RING, RING + 4 * places - 1)
          call('SETRANGE', key, RING, sub(ring, 4 * head + 1) .. sub(ring, 1, 4 * head))
          head = 0
        end
        places = math.min(burst, math.max(8, places * 2))
      else
        pause(key)
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
  call('SETRANGE', key, '16', pack('<I4I4I8I4I2I2I2', day, used, at, burst, places, len, head))
  return limit * 32 + outcome * 4 + scope, used * 1048576 + allowed * 1024 + refused
end

local function charge_demo(key, count)
  local counter = redis.pcall('GET', key)
  if type(counter) == 'table' then return 16, 0 end
  local day, used = now_day, 0
  if counter and #counter == 8 then
    day, used = unpack('<I4I4', counter)
    if now_day > day then day, used = now_day, 0 end
  end
  local allowed = math.max(0, math.min(count, demo_limit - used))
  if allowed > 0 then
    used = used + allowed
    call('SET', key, pack('<I4I4', day, used), 'EX', 172800)
  end
  return demo_limit * 32, used * 1048576 + allowed * 1024 + (count - allowed)
end

local answer = { now }
for i, key in ipairs(KEYS) do
  local charge = byte(key, -1) == 100 and charge_demo or charge_key
  answer[2 * i], answer[2 * i + 1] = charge(key, tonumber(ARGV[4 + i] or 1))
end
return answer
