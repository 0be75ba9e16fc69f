-- Removes a reservation.
--
-- KEYS[1]  the reservations of an account (`…:p`): key ID → time of the reservation, ms
-- ARGV[1]  key ID
-- ARGV[2]  time of the reservation
-- returns  1 removed, 0 it no longer exists or was renewed
--
-- Atomic because a reservation that was renewed after the caller read it must stay.

if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
return redis.call('HDEL', KEYS[1], ARGV[1])
