# Orders as records of many fields: read from CSV, grouped, changed, and written as JSON.
require 'csv'
require 'json'

$seed = 3
def random(limit)
  $seed = ($seed * 1_103_515_245 + 12_345) % 2_147_483_648
  ($seed >> 8) % limit
end

Order = Struct.new(:number, :customer, :day, :amount, :note)
lines = Array.new(Integer(ARGV[0])) do |number|
  "#{number},customer #{random(500)},2024-#{1 + random(12)}-#{1 + random(28)},#{random(90_000)},#{'x' * random(80)}"
end
orders = CSV.parse(lines.join("\n")).map { |row| Order.new(row[0].to_i, row[1], row[2], row[3].to_i, row[4]) }
total = 0
6.times do |turn|
  sums = orders.group_by { |order| [order.customer, order.day[0, 7]] }
               .transform_values { |group| group.sum(&:amount) }
  text = JSON.generate(sums: sums, rows: orders.each_slice(6).map { |slice| slice[0].to_h })
  total += JSON.parse(text)['rows'].size + text.size
  (turn...orders.size).step(5) do |place|
    old = orders[place]
    orders[place] = Order.new(old.number, old.customer, old.day, old.amount * 2, old.note.to_s[random(40)..])
  end
end
puts total, orders.size
