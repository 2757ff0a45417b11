-- Tables, strings, closures and coroutines that live for different times.
local rounds = tonumber(arg[1])
local seed = 7

local function random(limit)
    seed = (seed * 1103515245 + 12345) % 2147483648
    return seed // 65536 % limit + 1
end

local function tree(depth)
    if depth == 0 then
        return { value = random(1000) }
    end
    return { left = tree(depth - 1), right = tree(depth - 1), value = depth }
end

local function total(node)
    if node.left then
        return node.value + total(node.left) + total(node.right)
    end
    return node.value
end

local words = coroutine.wrap(function()
    while true do
        coroutine.yield(string.rep(string.char(96 + random(26)), random(200)))
    end
end)

local kept, checksum, forest = {}, 0, tree(12)
for round = 1, rounds do
    for _ = 1, 400 do
        local word = words()
        local slot = random(5000)
        if kept[slot] then
            checksum = (checksum * 31 + #kept[slot].text + kept[slot].made) % 1000000007
        end
        kept[slot] = { text = word .. round, made = round, read = function() return #word end }
    end
    if round % 20 == 0 then
        local parts = {}
        for slot = 1, 5000 do
            if kept[slot] then
                parts[#parts + 1] = kept[slot].text:upper():gsub("(.)(.)", "%2%1")
            end
        end
        local text = table.concat(parts, ",")
        checksum = (checksum + #text + total(tree(10))) % 1000000007
        print(round, #text, checksum)
    end
end
print("forest", total(forest), "checksum", checksum)
