-- Marks a pause, or a day on which the daily limit was exceeded, as announced to the owner.
--
-- KEYS[1]  record (`…:k`)
-- ARGV[1]  time of the pause, as in the record, or '' for the daily limit
-- ARGV[2]  the day as in the record, or '' for a pause
-- returns  1 if it was marked, 0 if there is nothing to mark: another pause, a day that was marked before, or no such key
--
-- Atomic because a late mark must not hide a second pause, and because only one of several processes may announce a day.

if redis.call('STRLEN', KEYS[1]) < 184 then return 0 end
if ARGV[1] ~= '' then
  if redis.call('GETRANGE', KEYS[1], 48, 55) ~= ARGV[1] then return 0 end
  local flags = struct.unpack('B', redis.call('GETRANGE', KEYS[1], 3, 3))
  redis.call('SETRANGE', KEYS[1], 3, struct.pack('B', flags - flags % 2))
else
  if redis.call('GETRANGE', KEYS[1], 56, 59) == ARGV[2] then return 0 end
  redis.call('SETRANGE', KEYS[1], 56, ARGV[2])
end
return 1
