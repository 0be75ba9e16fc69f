-- Checks whether reservations are still valid after their keys were written.
--
-- KEYS[1]  the account (`…:a`)
-- KEYS[2]  its reservations (`…:p`): key ID → time of the reservation, ms
-- ARGV[1]  time of the reservations, ms
-- ARGV[2]  the time in ms, or '' for this server's clock
-- ARGV[3…] key IDs
-- returns  1 all are valid, 2 all are valid and the account is suspended, 0 one is missing or over 30 s old,
--          -1 no such account
--
-- Atomic because the account and all reservations must be valid at the same moment. An account deletion marks the
-- account first and reads the reservations next, so a key that passes this check is either deleted with its account or
-- listed. After 60 s a listing may remove a reservation without a key (RESERVATION_MS in src/store.rs): a key that
-- passes this check was written before that. Both times are from the account's server, because the clocks of two
-- masters can differ by more than these 30 s.

if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], 'deleting') == 1 then return -1 end
local now = tonumber(ARGV[2])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
if math.abs(now - tonumber(ARGV[1])) > 30000 then return 0 end
for i = 3, #ARGV do
  if redis.call('HGET', KEYS[2], ARGV[i]) ~= ARGV[1] then return 0 end
end
local standing = redis.call('HGET', KEYS[1], 'standing')
if standing and cjson.decode(standing).suspension then return 2 end
return 1
