-- Where the site has no function of its own: the promotions in force, which the server keeps in the table.
CREATE FUNCTION api.update_promoted_metrics() RETURNS SETOF public.promoted_metrics LANGUAGE sql STABLE
    AS $$ SELECT device_id, metric_id FROM public.promoted_metrics $$;
