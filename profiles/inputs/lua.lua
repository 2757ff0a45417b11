-- An index of random words by document, some documents replaced, and what is left written out.
local seed = 5
local function random(limit)
    seed = (seed * 16807) % 2147483647
    return seed % limit + 1
end
local documents, index = {}, {}
for turn = 1, tonumber(arg[1]) do
    local words = {}
    for place = 1, 20 + random(60) do
        words[place] = string.rep(string.char(96 + random(26)), random(14)) .. random(300)
    end
    local slot = random(1500)
    for _, word in ipairs(documents[slot] or {}) do
        local found = index[word]
        if found then found[slot] = nil end
    end
    documents[slot] = words
    for place, word in ipairs(words) do
        index[word] = index[word] or {}
        index[word][slot] = place
    end
end
local lines = {}
for slot, words in pairs(documents) do lines[#lines + 1] = slot .. ":" .. table.concat(words, " ") end
table.sort(lines)
print(#table.concat(lines, "\n"))
