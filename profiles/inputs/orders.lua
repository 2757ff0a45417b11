-- Orders as records of many fields: read from text, grouped, changed, and written out.
local seed = 3
local function random(limit)
    seed = (seed * 16807) % 2147483647
    return seed % limit
end
local lines = {}
for number = 1, tonumber(arg[1]) do
    lines[number] = string.format("%d,customer %d,2024-%02d-%02d,%d,%s", number, random(500), 1 + random(12),
        1 + random(28), random(90000), string.rep("x", random(80)))
end
local orders = {}
for _, line in ipairs(lines) do
    local number, customer, day, amount, note = line:match("(%d+),([^,]*),([^,]*),(%d+),(.*)")
    orders[#orders + 1] = {
        number = tonumber(number), customer = customer, day = day, amount = tonumber(amount), note = note,
    }
end
lines = nil
local total = 0
for turn = 1, 6 do
    local months = {}
    for _, order in ipairs(orders) do
        local month = order.customer .. order.day:sub(1, 7)
        months[month] = months[month] or {}
        table.insert(months[month], order)
    end
    local written = {}
    for month, group in pairs(months) do
        local sum = 0
        for _, order in ipairs(group) do sum = sum + order.amount end
        written[#written + 1] = month .. "=" .. sum
    end
    for place = turn, #orders, 6 do
        local order = orders[place]
        written[#written + 1] = order.number .. ":" .. order.customer .. ":" .. order.note
    end
    total = total + #table.concat(written, "\n")
    for place = turn, #orders, 5 do
        local old = orders[place]
        orders[place] = {
            number = old.number, customer = old.customer, day = old.day, amount = old.amount * 2,
            note = old.note:sub(random(40)),
        }
    end
end
print(total, #orders)
