-- Writes a new key's record, description and first event.
--
-- KEYS[1]  record (`…:k`)   KEYS[2]  description (`…:m`)   KEYS[3]  events (`…:e`)
-- ARGV[1]  when its place was reserved, ms    ARGV[2]  the time in ms, or '' for this server's clock
-- ARGV[3]  the record's bytes                 ARGV[4]  the event's line
-- ARGV[5…] the description's fields and values
-- returns  1 written, 2 it was there already, 0 too late: the reservation may have been cleared
--
-- Why in one script: a key must not be chargeable before it can be listed, nor half written.

local now = tonumber(ARGV[2])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
if now - tonumber(ARGV[1]) > 30000 then return 0 end
if redis.call('EXISTS', KEYS[1]) == 1 then return 2 end
redis.call('SET', KEYS[1], ARGV[3])
redis.call('HSET', KEYS[2], unpack(ARGV, 5))
redis.call('DEL', KEYS[3])
redis.call('LPUSH', KEYS[3], ARGV[4])
return 1
