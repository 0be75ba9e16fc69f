-- Reserves key slots in an account, so that it never exceeds its maximum number of keys.
--
-- KEYS[1]  the account (`…:a`)
-- KEYS[2]  its reservations (`…:p`): key ID → time of the reservation, ms
-- ARGV[1]  maximum number of reservations
-- ARGV[2]  the time in ms, or '' for this server's clock
-- ARGV[3…] key IDs
-- returns  the time in ms, then for each key ID: 1 reserved, 2 already reserved, 0 limit reached;
--          or only -1 if there is no such account
--
-- Atomic because concurrent creations must not take the same last key slot. The record may be in another slot of a
-- Cluster. It is written afterward (create_key.lua), then the reservation is checked again (check_reservations.lua).
-- An existing reservation gets the new time, so that an import can complete a creation that was interrupted long ago.

if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], 'deleting') == 1 then return { -1 } end
local now = tonumber(ARGV[2])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local reply, taken = { now }, redis.call('HLEN', KEYS[2])
for i = 3, #ARGV do
  if redis.call('HEXISTS', KEYS[2], ARGV[i]) == 1 then
    redis.call('HSET', KEYS[2], ARGV[i], string.format('%.0f', now))
    reply[i - 1] = 2
  elseif taken < tonumber(ARGV[1]) then
    redis.call('HSET', KEYS[2], ARGV[i], string.format('%.0f', now))
    reply[i - 1], taken = 1, taken + 1
  else
    reply[i - 1] = 0
  end
end
return reply
