//! Tables of `pg_catalog` without rows, which psql and drivers read.

/// A table with its columns: a letter for the type (`n` number, `t` text, `b` boolean, `f` number with fraction, `l`
/// list of numbers, `a` list of texts) and the default. Columns without a default are null, as are lists.
pub(crate) type Spec = (&'static str, &'static str);

/// The tables: ours have no indexes, constraints, defaults, triggers or descriptions.
pub(crate) const EMPTY: &[Spec] = &[
    ("pg_attrdef", "oid:n adrelid:n adnum:n adbin:t"),
    (
        "pg_index",
        "indexrelid:n indrelid:n indnatts:n indnkeyatts:n indisunique:b indnullsnotdistinct:b indisprimary:b \
         indisexclusion:b indimmediate:b indisclustered:b indisvalid:b indcheckxmin:b indisready:b indislive:b \
         indisreplident:b indkey:l indcollation:l indclass:l indoption:l indexprs:t indpred:t",
    ),
    (
        "pg_constraint",
        "oid:n tableoid:n conname:t connamespace:n contype:t condeferrable:b condeferred:b convalidated:b conrelid:n contypid:n \
         conindid:n conparentid:n confrelid:n confupdtype:t confdeltype:t confmatchtype:t conislocal:b coninhcount:n \
         connoinherit:b conkey:l confkey:l conpfeqop:l conppeqop:l conffeqop:l confdelsetcols:l conexclop:l conbin:t",
    ),
    ("pg_description", "objoid:n classoid:n objsubid:n description:t"),
    ("pg_shdescription", "objoid:n classoid:n description:t"),
    ("pg_inherits", "inhrelid:n inhparent:n inhseqno:n inhdetachpending:b"),
    (
        "pg_trigger",
        "oid:n tableoid:n tgrelid:n tgparentid:n tgname:t tgfoid:n tgtype:n tgenabled:t tgisinternal:b tgconstrrelid:n \
         tgconstrindid:n tgconstraint:n tgdeferrable:b tginitdeferred:b tgnargs:n tgattr:l tgargs:t tgqual:t \
         tgoldtable:t tgnewtable:t",
    ),
    (
        "pg_rewrite",
        "oid:n tableoid:n rulename:t ev_class:n ev_type:t ev_enabled:t is_instead:b ev_qual:t ev_action:t",
    ),
    (
        "pg_policy",
        "oid:n tableoid:n polname:t polrelid:n polcmd:t polpermissive:b polroles:l polqual:t polwithcheck:t",
    ),
    (
        "pg_publication",
        "oid:n tableoid:n pubname:t pubowner:n puballtables:b pubinsert:b pubupdate:b pubdelete:b pubtruncate:b pubviaroot:b",
    ),
    ("pg_publication_rel", "oid:n prpubid:n prrelid:n prqual:t prattrs:l"),
    ("pg_publication_namespace", "oid:n pnpubid:n pnnspid:n"),
    (
        "pg_statistic_ext",
        "oid:n stxrelid:n stxname:t stxnamespace:n stxowner:n stxstattarget:n stxkeys:l stxkind:a stxexprs:t",
    ),
    ("pg_enum", "oid:n enumtypid:n enumsortorder:f enumlabel:t"),
    (
        "pg_range",
        "rngtypid:n rngsubtype:n rngmultitypid:n rngcollation:n rngsubopc:n rngcanonical:t rngsubdiff:t",
    ),
    (
        "pg_collation",
        "oid:n collname:t collnamespace:n collowner:n collprovider:t collisdeterministic:b collencoding:n \
         collcollate:t collctype:t colliculocale:t collversion:t",
    ),
    (
        "pg_extension",
        "oid:n tableoid:n extname:t extowner:n extnamespace:n extrelocatable:b extversion:t extconfig:l extcondition:a",
    ),
    ("pg_foreign_table", "tableoid:n ftrelid:n ftserver:n ftoptions:a"),
    (
        "pg_foreign_server",
        "oid:n tableoid:n srvname:t srvowner:n srvfdw:n srvtype:t srvversion:t srvacl:a srvoptions:a",
    ),
    (
        "pg_partitioned_table",
        "partrelid:n partstrat:t partnatts:n partdefid:n partattrs:l partexprs:t",
    ),
    (
        "pg_sequence",
        "seqrelid:n seqtypid:n seqstart:n seqincrement:n seqmax:n seqmin:n seqcache:n seqcycle:b",
    ),
    ("pg_depend", "classid:n objid:n objsubid:n refclassid:n refobjid:n refobjsubid:n deptype:t"),
    ("pg_tablespace", "oid:n tableoid:n spcname:t spcowner:n spcacl:a spcoptions:a"),
    ("pg_views", "schemaname:t viewname:t viewowner:t definition:t"),
    (
        "pg_matviews",
        "schemaname:t matviewname:t matviewowner:t tablespace:t hasindexes:b ispopulated:b definition:t",
    ),
    ("pg_indexes", "schemaname:t tablename:t indexname:t tablespace:t indexdef:t"),
    ("pg_auth_members", "roleid:n member:n grantor:n admin_option:b"),
    (
        "pg_language",
        "oid:n tableoid:n lanname:t lanowner:n lanispl:b lanpltrusted:b lanplcallfoid:n laninline:n lanvalidator:n \
         lanacl:a",
    ),
    (
        "pg_aggregate",
        "aggfnoid:t aggkind:t aggnumdirectargs:n aggtransfn:t aggfinalfn:t aggcombinefn:t aggserialfn:t \
         aggdeserialfn:t aggmtransfn:t aggminvtransfn:t aggmfinalfn:t aggfinalextra:b aggmfinalextra:b \
         aggfinalmodify:t aggmfinalmodify:t aggsortop:n aggtranstype:n aggtransspace:n aggmtranstype:n \
         aggmtransspace:n agginitval:t aggminitval:t",
    ),
    (
        "pg_amop",
        "oid:n tableoid:n amopfamily:n amoplefttype:n amoprighttype:n amopstrategy:n amoppurpose:t amopopr:n \
         amopmethod:n amopsortfamily:n",
    ),
    (
        "pg_amproc",
        "oid:n tableoid:n amprocfamily:n amproclefttype:n amprocrighttype:n amprocnum:n amproc:t",
    ),
    ("pg_cast", "oid:n tableoid:n castsource:n casttarget:n castfunc:n castcontext:t castmethod:t"),
    (
        "pg_conversion",
        "oid:n tableoid:n conname:t connamespace:n conowner:n conforencoding:n contoencoding:n conproc:t \
         condefault:b",
    ),
    ("pg_db_role_setting", "setdatabase:n setrole:n setconfig:a"),
    (
        "pg_default_acl",
        "oid:n tableoid:n defaclrole:n defaclnamespace:n defaclobjtype:t defaclacl:a",
    ),
    (
        "pg_event_trigger",
        "oid:n tableoid:n evtname:t evtevent:t evtowner:n evtfoid:n evtenabled:t evttags:a",
    ),
    (
        "pg_foreign_data_wrapper",
        "oid:n tableoid:n fdwname:t fdwowner:n fdwhandler:n fdwvalidator:n fdwacl:a fdwoptions:a",
    ),
    ("pg_largeobject_metadata", "oid:n tableoid:n lomowner:n lomacl:a"),
    (
        "pg_opclass",
        "oid:n tableoid:n opcmethod:n opcname:t opcnamespace:n opcowner:n opcfamily:n opcintype:n opcdefault:b \
         opckeytype:n",
    ),
    (
        "pg_operator",
        "oid:n tableoid:n oprname:t oprnamespace:n oprowner:n oprkind:t oprcanmerge:b oprcanhash:b oprleft:n \
         oprright:n oprresult:n oprcom:n oprnegate:n oprcode:t oprrest:t oprjoin:t",
    ),
    ("pg_opfamily", "oid:n tableoid:n opfmethod:n opfname:t opfnamespace:n opfowner:n"),
    ("pg_parameter_acl", "oid:n tableoid:n parname:t paracl:a"),
    (
        "pg_proc",
        "oid:n tableoid:n proname:t pronamespace:n proowner:n prolang:n procost:f prorows:f provariadic:n \
         prosupport:t prokind:t prosecdef:b proleakproof:b proisstrict:b proretset:b provolatile:t proparallel:t \
         pronargs:n pronargdefaults:n prorettype:n proargtypes:l proallargtypes:l proargmodes:l proargnames:a \
         proargdefaults:t protrftypes:l prosrc:t probin:t prosqlbody:t proconfig:a proacl:a",
    ),
    (
        "pg_subscription",
        "oid:n tableoid:n subdbid:n subskiplsn:t subname:t subowner:n subenabled:b subbinary:b substream:b \
         subtwophasestate:t subdisableonerr:b subconninfo:t subslotname:t subsynccommit:t subpublications:a",
    ),
    ("pg_ts_config", "oid:n tableoid:n cfgname:t cfgnamespace:n cfgowner:n cfgparser:n"),
    ("pg_ts_config_map", "mapcfg:n maptokentype:n mapseqno:n mapdict:n"),
    (
        "pg_ts_dict",
        "oid:n tableoid:n dictname:t dictnamespace:n dictowner:n dicttemplate:n dictinitoption:t",
    ),
    (
        "pg_ts_parser",
        "oid:n tableoid:n prsname:t prsnamespace:n prsstart:t prstoken:t prsend:t prsheadline:t prslextype:t",
    ),
    ("pg_ts_template", "oid:n tableoid:n tmplname:t tmplnamespace:n tmplinit:t tmpllexize:t"),
    ("pg_user_mappings", "umid:n srvid:n srvname:t umuser:n usename:t umoptions:a"),
];
