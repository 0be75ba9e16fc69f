-- Changes a key's state, name or daily limit, and adds an event.
--
-- KEYS[1]  record (`…:k`)
-- KEYS[2]  metadata (`…:m`)
-- KEYS[3]  events (`…:e`)
-- ARGV[1]  ID of the account that must own the key, or '' for any
-- ARGV[2]  resume | deactivate | reactivate | rename | limit
-- ARGV[3]  the new name, or the new limit (0 for the default)
-- ARGV[4]  the time in ms, or '' for this server's clock
-- ARGV[5]  the event's kind and reason
-- returns  1 changed, 0 no effect, -1 no such key, -2 rejected: inactive, -3 rejected: paused, -4 invalid record
--
-- Atomic because a charge must see the new state together with the cleared burst window, and the owner check must
-- still hold when the change is written. The transitions are those of StoredKey::apply in src/domain/key.rs.

local now = tonumber(ARGV[4])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local account = redis.call('HGET', KEYS[2], 'account')
if not account or (ARGV[1] ~= '' and ARGV[1] ~= account) then return -1 end
local header = redis.call('GETRANGE', KEYS[1], 0, 43)
if #header == 0 then return -1 end
if #header < 44 or string.byte(header) ~= 1 then return -4 end

local ACTIVE, PAUSED, INACTIVE = 0, 1, 2
local action, state = ARGV[2], string.byte(header, 3)

local function set_state(new_state)
  redis.call('SETRANGE', KEYS[1], 2, string.char(new_state))
  redis.call('SETRANGE', KEYS[1], 8, struct.pack('<I8', now))
  -- Clears the window: latest arrival, burst limit, capacity, length and head.
  if new_state == ACTIVE then redis.call('SETRANGE', KEYS[1], 24, string.rep('\0', 18)) end
end

if action == 'resume' then
  if state == INACTIVE then return -2 end
  if state == ACTIVE then return 0 end
  set_state(ACTIVE)
elseif action == 'reactivate' then
  if state == PAUSED then return -3 end
  if state == ACTIVE then return 0 end
  set_state(ACTIVE)
elseif action == 'deactivate' then
  if state == INACTIVE then return 0 end
  set_state(INACTIVE)
elseif action == 'rename' then
  if redis.call('HGET', KEYS[2], 'name') == ARGV[3] then return 0 end
  redis.call('HSET', KEYS[2], 'name', ARGV[3])
elseif action == 'limit' then
  local limit = struct.pack('<I4', tonumber(ARGV[3]))
  if string.sub(header, 5, 8) == limit then return 0 end
  redis.call('SETRANGE', KEYS[1], 4, limit)
end
redis.call('LPUSH', KEYS[3], string.format('%.0f ', now) .. ARGV[5])
redis.call('LTRIM', KEYS[3], 0, 99)
return 1
