-- The number of rows comes as the parameter :rows.
PRAGMA journal_mode = DELETE;
PRAGMA cache_size = -8000;
CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT NOT NULL, price INTEGER, note BLOB);
CREATE TABLE sale (id INTEGER PRIMARY KEY, item INTEGER REFERENCES item, day TEXT, amount INTEGER);
BEGIN;
INSERT INTO item
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :rows / 10)
    SELECT i, 'item ' || i * 7919 % 100003, i * 31 % 997, zeroblob(i % 600) FROM n;
INSERT INTO sale
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :rows)
    SELECT i, 1 + i * 7919 % (:rows / 10), date('2020-01-01', (i * 13 % 1000) || ' days'), i % 17 FROM n;
COMMIT;
CREATE INDEX item_name ON item (name);
CREATE INDEX sale_item_day ON sale (item, day);
CREATE VIRTUAL TABLE words USING fts5(body);
INSERT INTO words SELECT name || ' sold ' || hex(price) || ' times ' || id % 97 FROM item;
SELECT count(*), sum(length(body)) FROM words WHERE words MATCH 'sold AND 13';
SELECT day, sum(amount * price), group_concat(DISTINCT amount) FROM sale JOIN item ON item.id = sale.item
    GROUP BY day ORDER BY 2 DESC, day LIMIT 20;
SELECT strftime('%Y-%m', day) AS month, count(*), avg(price) FROM sale JOIN item ON item.id = sale.item
    GROUP BY month ORDER BY month;
SELECT name, row_number() OVER (PARTITION BY price ORDER BY name) AS position FROM item
    ORDER BY position DESC, name LIMIT 20;
SELECT sum(json_array_length(list)) FROM
    (SELECT json_group_array(json_object('day', day, 'amount', amount)) AS list FROM sale GROUP BY item);
UPDATE item SET note = zeroblob(2000 - id % 600), name = upper(name) WHERE id % 3 = 0;
DELETE FROM sale WHERE id % 4 = 1;
PRAGMA integrity_check;
PRAGMA foreign_key_check;
VACUUM;
INSERT INTO words(words) VALUES ('integrity-check');
PRAGMA integrity_check;
SELECT count(*), sum(id), sum(amount) FROM sale;
SELECT hex(zeroblob(4)), max(length(note)) FROM item;
