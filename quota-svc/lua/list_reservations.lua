-- Lists the reservations of an account.
--
-- KEYS[1]  its reservations (`…:p`): key ID → time of the reservation, ms
-- ARGV[1]  the time in ms, or '' for this server's clock
-- returns  the time in ms, then for each reservation: key ID, time of the reservation
--
-- Atomic because the age of a reservation must be measured with the clock of the server that stored it, and before the
-- caller looks for the key: check_reservations.lua then rejects a key that is written later.

local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
end
local reply = redis.call('HGETALL', KEYS[1])
table.insert(reply, 1, now)
return reply
