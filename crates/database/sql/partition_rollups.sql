-- The first version of the schema had all rollups in one table. It becomes the default partition, in place. The views are made again
-- after this, as they read the table of before.
DO $$ BEGIN
    IF EXISTS (SELECT FROM pg_class WHERE oid = 'jobmeter.rollups'::regclass AND relkind = 'r') THEN
        ALTER TABLE jobmeter.rollups RENAME TO rollups_default;
        ALTER INDEX jobmeter.rollups_pkey RENAME TO rollups_default_pkey;
        CREATE TABLE jobmeter.rollups (LIKE jobmeter.rollups_default, PRIMARY KEY (window_us, series_id, at_us))
            PARTITION BY RANGE (window_us, at_us);
        ALTER TABLE jobmeter.rollups ATTACH PARTITION jobmeter.rollups_default DEFAULT;
    END IF;
END $$;
