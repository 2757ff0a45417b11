# Objects, strings, arrays and threads, with compacting collections in between.
rounds = Integer(ARGV[0])

def work(seed, turns)
  kept = {}
  checksum = 0
  1.upto(turns) do |turn|
    300.times do
      seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648
      slot = (seed >> 8) % 3000
      checksum = (checksum * 31 + kept[slot].sum(&:size)) % 1_000_000_007 if kept[slot]
      kept[slot] = Array.new(seed % 7) { |i| (turn + i).to_s * ((seed >> 16) % 40) }
    end
    next unless (turn % 50).zero?

    text = kept.sort.map { |slot, parts| "#{slot}:#{parts.join('/')}" }.join(',')
    checksum = (checksum + text.scan(/\d+/).size + text.reverse.size) % 1_000_000_007
    GC.start
  end
  checksum
end

puts "main #{work(7, rounds)}"
GC.compact
threads = (1..3).map { |seed| Thread.new { work(seed, rounds / 4) } }
threads.each_with_index { |thread, index| puts "thread #{index} #{thread.value}" }
puts "symbols #{(1..2000).map { |i| "name_#{i}".to_sym }.uniq.size}"
puts "bytes #{(0..9).map { |i| ([i] * 300_000).pack('C*') }.join.sum(32)}"
