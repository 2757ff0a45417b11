-- Orders and customers: inserts, an index, updates, deletes, groups.
.parameter init
CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT, city TEXT);
CREATE TABLE purchase (id INTEGER PRIMARY KEY, customer INTEGER, item TEXT, price REAL);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 8000)
INSERT INTO customer SELECT i, 'name' || (i * 7919 % 8000), 'city' || (i % 97) FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 120000)
INSERT INTO purchase SELECT i, i * 31 % 8000 + 1, substr(hex(i * 2654435761), 1, i % 40), i % 991 FROM n;
CREATE INDEX by_customer ON purchase (customer, price);
UPDATE purchase SET item = item || '!' WHERE id % 3 = 0;
DELETE FROM purchase WHERE id % 7 = 0;
SELECT city, count(*), round(sum(price)) FROM customer JOIN purchase ON customer = customer.id
GROUP BY city ORDER BY 3 DESC LIMIT 5;
